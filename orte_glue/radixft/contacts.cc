// The daemons' addresses, which the runtime keeps in the store of this process's PMIx server.
//
// They are looked up when the job begins and once more when the view changes, some in each tick,
// and kept. A look into the store waits for the server's thread, which a client that dies at the
// wrong moment can leave before a mutex for ever (errmgr_radixft_pmix.cc), and a daemon must be
// able to knock at others all the same. At mpirun the runtime replaces the address of a daemon that
// it has started again: there a member's is kept alone, until it is one no more.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/contact_book.hpp"
#include "orte_glue/radixft/probe.hpp"

namespace ft::radixft {

namespace {

/// So many addresses are looked up in a tick.
constexpr std::size_t most_looked_up = 64;

std::string look_up(NodeId id)
{
    orte_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    char *uri = nullptr;
    int rc = OPAL_ERROR;
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_PROC_URI, &name, &uri, OPAL_STRING);
    std::string text;
    if (rc == OPAL_SUCCESS && uri != nullptr) {
        text = uri;
        std::free(uri);
    } else if (id == 0 && orte_process_info.my_hnp_uri != nullptr) {
        text = orte_process_info.my_hnp_uri;
    }
    return text;
}

bool lasts(NodeId id)
{
    return !ORTE_PROC_IS_HNP || Daemon::get().has_member(id);
}

ContactBook book(look_up, lasts);

} // namespace

std::string contact(NodeId id)
{
    return book.get(id);
}

void Daemon::look_up_contacts()
{
    if (is_member()) {
        const membership::View &view = *session_->engine().view();
        book.look_up_some(
            view.size(), [&view](std::size_t i) { return view.at(static_cast<NodeId>(i)); },
            most_looked_up);
    }
}

void contacts_changed(std::span<const membership::Removed> gone)
{
    for (const membership::Removed &one : gone) {
        if (ORTE_PROC_IS_HNP) {
            book.forget(one.id);
        }
    }
    book.begin_anew();
}

std::vector<sockaddr_storage> addresses_of(NodeId id)
{
    return elsewhere(addresses_in(contact(id)), addresses_in(contact(ORTE_PROC_MY_NAME->vpid)));
}

void remember_contact(NodeId id, const std::string &uri)
{
    if (ORTE_PROC_IS_HNP || uri.empty()) {
        book.forget(id);
    } else {
        book.remember(id, uri);
    }
    opal_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    opal_value_t value;
    OBJ_CONSTRUCT(&value, opal_value_t);
    value.key = strdup(OPAL_PMIX_PROC_URI);
    value.type = OPAL_STRING;
    value.data.string = strdup(uri.c_str());
    opal_pmix.store_local(&name, &value);
    OBJ_DESTRUCT(&value);
}

} // namespace ft::radixft
