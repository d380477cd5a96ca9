/// At mpirun, or at the daemon that stands in for it: what is kept for those who publish and look
/// up is changed from here, at once.
///
/// A message to the server would come behind a look-up that waits to be handled already, and that
/// would still be given what is no longer to be had. So the server
/// (orte/runtime/orte_data_server.c) is called directly. What is published here is gone when one
/// has read it, as everything that roots tell each other. One thread, that of the runtime's event
/// base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/types.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace ft::radixft::data_server {

/// What is published in the place of names. The error manager of a rank turns it into MPI_ERR_SPAWN
/// where Open MPI wants to read a name.
inline constexpr char refusal[] = "radixft-spawn-failed";

template <typename T>
bool take(opal_buffer_t &from, T &what, opal_data_type_t type)
{
    std::int32_t one = 1;
    return opal_dss.unpack(&from, &what, &one, type) == OPAL_SUCCESS;
}

/// A value under a key, as a publication or an answer carries it.
class Value {
  public:
    static Value text(const std::string &key, const char *text);
    /// The number that ends an exchange soonest.
    static Value number(const std::string &key);
    Value(Value &&other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
    Value &operator=(Value &&other) noexcept
    {
        std::swap(value_, other.value_);
        return *this;
    }
    ~Value()
    {
        if (value_ != nullptr) {
            OBJ_RELEASE(value_);
        }
    }
    bool pack(opal_buffer_t &into) const;

  private:
    Value(const std::string &key, opal_data_type_t type);

    opal_value_t *value_;
};

/// `owner` has published this.
void publish(const orte_process_name_t &owner, const Value &value);
/// As if `owner` had asked for it.
void take_back(Rank owner, const std::string &key);
/// Answers a look-up that the server has not been given; `request` begins with the room number.
void answer(const orte_process_name_t &sender, opal_buffer_t &request, const Value &value);
/// Tells who publishes that it is done; likewise.
void acknowledge(const orte_process_name_t &sender, opal_buffer_t &request);

} // namespace ft::radixft::data_server
