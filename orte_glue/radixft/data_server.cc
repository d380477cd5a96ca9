#include "orte_glue/radixft/data_server.hpp"

#include <cstdint>
#include <cstdlib>
#include <memory>

#include <unistd.h>

namespace ft::radixft::data_server {

namespace {

/// The room of nobody who waits for an answer.
constexpr int no_room = -1;

struct Release {
    void operator()(opal_buffer_t *buffer) const { OBJ_RELEASE(buffer); }
};
using Buffer = std::unique_ptr<opal_buffer_t, Release>;

/// The beginning of a command.
Buffer command(std::uint8_t what, orte_process_name_t owner)
{
    Buffer message(OBJ_NEW(opal_buffer_t));
    int room = no_room;
    opal_dss.pack(message.get(), &room, 1, OPAL_INT);
    opal_dss.pack(message.get(), &what, 1, OPAL_UINT8);
    opal_dss.pack(message.get(), &owner, 1, OPAL_NAME);
    return message;
}

void add_user(opal_buffer_t &message)
{
    opal_value_t user;
    OBJ_CONSTRUCT(&user, opal_value_t);
    user.key = strdup(OPAL_PMIX_USERID);
    user.type = OPAL_UINT32;
    user.data.uint32 = geteuid();
    opal_value_t *value = &user;
    opal_dss.pack(&message, &value, 1, OPAL_VALUE);
    OBJ_DESTRUCT(&user);
}

void serve(opal_buffer_t &message)
{
    orte_data_server(ORTE_SUCCESS, ORTE_PROC_MY_NAME, &message, ORTE_RML_TAG_DATA_SERVER, nullptr);
}

/// The beginning of an answer, all went well; null if the request has no room number.
Buffer reply(opal_buffer_t &request)
{
    int room = no_room;
    if (!take(request, room, OPAL_INT)) {
        return nullptr;
    }
    Buffer message(OBJ_NEW(opal_buffer_t));
    int code = ORTE_SUCCESS;
    opal_dss.pack(message.get(), &room, 1, OPAL_INT);
    opal_dss.pack(message.get(), &code, 1, OPAL_INT);
    return message;
}

void send(const orte_process_name_t &to, Buffer message)
{
    orte_process_name_t name = to;
    if (message != nullptr &&
        orte_rml.send_buffer_nb(static_cast<orte_rml_conduit_t>(orte_mgmt_conduit), &name,
                                message.get(), ORTE_RML_TAG_DATA_CLIENT, orte_rml_send_callback,
                                nullptr) >= 0) {
        (void)message.release(); // orte_rml_send_callback() lets it go
    }
}

} // namespace

Value::Value(const std::string &key, opal_data_type_t type) : value_(OBJ_NEW(opal_value_t))
{
    value_->key = strdup(key.c_str());
    value_->type = type;
}

Value Value::text(const std::string &key, const char *text)
{
    Value value(key, OPAL_STRING);
    value.value_->data.string = strdup(text);
    return value;
}

Value Value::number(const std::string &key)
{
    Value value(key, OPAL_BYTE_OBJECT);
    int one = 1;
    opal_buffer_t packed;
    OBJ_CONSTRUCT(&packed, opal_buffer_t);
    opal_dss.pack(&packed, &one, 1, OPAL_INT);
    void *bytes = nullptr;
    std::int32_t size = 0;
    opal_dss.unload(&packed, &bytes, &size);
    OBJ_DESTRUCT(&packed);
    value.value_->data.bo.bytes = static_cast<std::uint8_t *>(bytes);
    value.value_->data.bo.size = size;
    return value;
}

bool Value::pack(opal_buffer_t &into) const
{
    opal_value_t *value = value_;
    return opal_dss.pack(&into, &value, 1, OPAL_VALUE) == OPAL_SUCCESS;
}

void publish(const orte_process_name_t &owner, const Value &value)
{
    const Buffer message = command(ORTE_PMIX_PUBLISH_CMD, owner);
    opal_pmix_data_range_t range = OPAL_PMIX_RANGE_SESSION;
    int persistence = OPAL_PMIX_PERSIST_FIRST_READ;
    opal_dss.pack(message.get(), &range, 1, OPAL_PMIX_DATA_RANGE);
    opal_dss.pack(message.get(), &persistence, 1, OPAL_INT);
    value.pack(*message);
    add_user(*message);
    serve(*message);
}

void take_back(Rank owner, const std::string &key)
{
    orte_process_name_t name;
    name.jobid = owner.jobid;
    name.vpid = owner.vpid;
    const Buffer message = command(ORTE_PMIX_UNPUBLISH_CMD, name);
    int range = OPAL_PMIX_RANGE_SESSION;
    std::uint32_t count = 1;
    const char *text = key.c_str();
    opal_dss.pack(message.get(), &range, 1, OPAL_INT);
    opal_dss.pack(message.get(), &count, 1, OPAL_UINT32);
    opal_dss.pack(message.get(), &text, 1, OPAL_STRING);
    add_user(*message);
    serve(*message);
}

void answer(const orte_process_name_t &sender, opal_buffer_t &request, const Value &value)
{
    Buffer message = reply(request);
    if (message != nullptr) {
        opal_dss.pack(message.get(), ORTE_PROC_MY_NAME, 1, OPAL_NAME);
        value.pack(*message);
    }
    send(sender, std::move(message));
}

void acknowledge(const orte_process_name_t &sender, opal_buffer_t &request)
{
    send(sender, reply(request));
}

} // namespace ft::radixft::data_server
