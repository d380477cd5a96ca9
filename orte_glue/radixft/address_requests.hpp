/// Ranks that ask for the addresses of one that is dead.
///
/// A rank asks for another's addresses when it first needs them (PMIx_Get), and its daemon asks
/// that of the other. Of a rank that was spawned and died, that daemon may have forgotten the whole
/// job: it takes the question for one that came too early, and keeps it. A daemon that is dead
/// answers nothing at all. The runtime would give up after ten seconds, but its countdown steps
/// over the value that ends it, so who asks waits for ever. Here the daemon that passed the
/// question on answers it when it knows of the death.
///
/// One thread, that of the runtime's event base.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/types.hpp"

#include <functional>
#include <map>

namespace ft::radixft {

class AddressRequests {
  public:
    /// Answers all questions for dead ranks that this daemon's own have asked: there are none. To
    /// be called again and again, since nobody says when one is asked.
    void refuse(const std::function<bool(Rank)> &dead);

  private:
    /// Answered, and for how many calls. An answer that is still on its way would go to whoever has
    /// the same place in the runtime's list by then: so the place is kept for a while.
    std::map<pmix_server_req_t *, unsigned> refused_;
};

} // namespace ft::radixft
