/// Asks a host whether a daemon still listens there, by knocking at its port.
///
/// A connection that is refused is proof: the host answers, and nobody listens any more. Accepted
/// means little (the kernel accepts for a stopped process too), silence nothing. This goes past the
/// runtime's own channel, which would print a page about every dead daemon that it cannot reach.
/// Runs on the runtime's event base, in its thread.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/stalls.hpp"

#include "opal/ft/base/time.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ft::radixft {

/// Knocks at all these addresses of one host and calls `done` once, from the event base: accepted
/// as soon as one accepts; refused when one refused and none accepted; unasked when neither, and
/// for one of them no socket was to be had, which says nothing of that host; silent when all stay
/// silent for `patience`, cannot be reached, or there are none.
void knock(const std::vector<sockaddr_storage> &addresses, base::Duration patience,
           std::function<void(Knock)> done);

/// Knocks at each of these addresses on its own and calls `done` once, from the event base, with
/// the answers in the same order: when all are there, or for the rest silence after `patience`.
void knock_at_each(const std::vector<sockaddr_storage> &addresses, base::Duration patience,
                   std::function<void(std::vector<Knock>)> done);

/// The addresses and ports in a contact string ("jobid.vpid;tcp://a,b:port;..."); unknown
/// transports are left out.
std::vector<sockaddr_storage> addresses_in(const std::string &uri);

/// Those addresses of another host that are not this one's too. A network of each host for itself,
/// as containers have, has the same address everywhere: what refuses there is this host, which
/// proves nothing of the other.
std::vector<sockaddr_storage> elsewhere(std::vector<sockaddr_storage> addresses,
                                        std::span<const sockaddr_storage> own);

/// Whether two addresses are the same but for the port.
bool same_host(const sockaddr_storage &a, const sockaddr_storage &b);

} // namespace ft::radixft
