/// Asks a host whether a daemon still listens there, by knocking at its port.
///
/// A connection that is refused is proof: the host answers, and nobody listens any more. Accepted
/// means little (the kernel accepts for a stopped process too), silence nothing. This goes past the
/// runtime's own channel, which would print a page about every dead daemon that it cannot reach.
/// Runs on the runtime's event base, in its thread.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "opal/ft/base/time.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ft::radixft {

enum class Knock : std::uint8_t { accepted, refused, silent };

/// Knocks at all addresses of the contact string `uri` ("jobid.vpid;tcp://a,b:port;...") and calls
/// `done` once, from the event base: accepted as soon as one accepts; refused when one refused and
/// none accepted; silent when all stay silent for `patience`, cannot be reached, or there are none.
void knock(const std::string &uri, base::Duration patience, std::function<void(Knock)> done);

/// The addresses and ports in a contact string; unknown transports are left out.
std::vector<sockaddr_storage> addresses_in(const std::string &uri);

} // namespace ft::radixft
