// Peers, and the connections to them: how these are made, break and are made anew.
#include "opal/mca/btl/ucx/ucx.hpp"

#include <sys/resource.h>

#include <atomic>
#include <cinttypes>

#include "opal/mca/clock.hpp"
#include "opal/mca/selected_pml.hpp"

namespace ft::ucx {

namespace {

/// A connection that broke is made anew after 10 ms, then twice as late each time, at most 640 ms.
constexpr std::uint8_t most_doublings = 6;

/// Once for each process. Not by a help text: to read one takes a descriptor.
void tell_of_want(const Resource &resource) noexcept
{
    static std::atomic<bool> told{false};
    if (told.exchange(true)) {
        return;
    }
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::fprintf(stderr,
                 "btl/ucx[rank %" PRIu32 "]: a connection over %s (%s) to this process on %s is "
                 "not taken in,\n"
                 "for too few of its %llu file descriptors are free. What the peer sends that way "
                 "waits, or goes by\n"
                 "another path, until more are free. If that is not soon: raise the limit on the "
                 "hosts of the job (ulimit -n),\n"
                 "or open fewer files.\n",
                 OPAL_PROC_MY_NAME.vpid, resource.transport.c_str(), resource.device.c_str(),
                 opal_process_info.nodename, static_cast<unsigned long long>(limit.rlim_cur));
}

} // namespace

int status_of_lost() noexcept
{
    return mca::pml_retransmits() ? OPAL_SUCCESS : OPAL_ERR_UNREACH;
}

Endpoint *Module::add_peer(opal_proc_t *process, std::uint64_t cookie, Address address)
{
    const mca::Guard guard(lock_);
    auto fresh = std::make_unique<Endpoint>();
    Endpoint *endpoint = fresh.get();
    endpoint->process = process;
    endpoint->cookie = cookie;
    endpoint->address = std::move(address);
    endpoint->waiting.reserve(most_waiting);
    // What is noted of peers later must not fail for want of memory.
    blocked_.reserve(endpoints_.size() + 1);
    lost_.reserve(endpoints_.size() + 1);
    failed_.reserve(endpoints_.size() + 1);
    graveyard_.reserve(graveyard_.size() + 2 * (endpoints_.size() + 1));
    by_cookie_[cookie & Header::cookie_mask] = endpoint;
    endpoints_.emplace(endpoint, std::move(fresh));
    return endpoint;
}

void Module::remove_peer(Endpoint *endpoint) noexcept
{
    {
        const mca::Guard guard(lock_);
        if (endpoint->way != nullptr) {
            say_goodbye(*endpoint);
        }
        if (endpoint->way != nullptr) { // UCX did not find it broken over that
            if (wires_ != nullptr) {
                wires_->let_go(*endpoint->wire, endpoint->way, true);
            }
            by_way_.erase(endpoint->way);
            if (under_way_) {
                graveyard_.push_back(endpoint->way);
            } else {
                uct_ep_destroy(endpoint->way); // what is in flight completes, with an error
                if (wires_ != nullptr) {
                    wires_->bury();
                }
            }
        }
        drop_waiting(*endpoint);
        std::erase(lost_, endpoint);
        std::erase(failed_, endpoint);
        const auto found = by_cookie_.find(endpoint->cookie & Header::cookie_mask);
        if (found != by_cookie_.end() && found->second == endpoint) {
            by_cookie_.erase(found);
        }
    }
    report(); // while the endpoint, which the callbacks get, is there
    const mca::Guard guard(lock_);
    endpoints_.erase(endpoint);
}

Module::Ready Module::ready(Endpoint &endpoint) noexcept
{
    if (OPAL_LIKELY(endpoint.way != nullptr)) {
        return OPAL_UNLIKELY(endpoint.broken) ? Ready::broken : Ready::yes;
    }
    if (endpoint.broken) {
        return Ready::broken;
    }
    if (endpoint.lost &&
        (!settings_.reconnect || port_->wants_checks() || mca::now() < endpoint.retry_at)) {
        return Ready::lost; // whoever is asked after and does not answer is dead
    }
    if (OPAL_UNLIKELY(delivers_)) {
        // UCX's tcp would take what it is reading from away to the new endpoint, and crash over it
        // once the message that it delivers is done (1.13, uct_tcp_ep_replace_ep).
        return Ready::later;
    }
    ucs_status_t status = UCS_OK;
    endpoint.way = connect(endpoint, status);
    if (endpoint.way != nullptr) {
        try {
            by_way_.emplace(endpoint.way, &endpoint);
            return Ready::yes;
        } catch (...) {
            status = UCS_ERR_NO_MEMORY;
        }
    }
    fail(endpoint, status);
    return endpoint.broken ? Ready::broken : Ready::lost;
}

uct_ep_h Module::connect(Endpoint &endpoint, ucs_status_t &status) noexcept
try {
    if (wires_ == nullptr) {
        endpoint.open = true;
        return port_->connect(endpoint.address, status);
    }
    // Who computes for long answers late; a PML that cannot send again waits as for a receiver.
    const base::Duration limit = mca::pml_retransmits() && settings_.wire_ms != 0
                                     ? base::Duration::from_ms(settings_.wire_ms)
                                     : base::Duration::max();
    endpoint.wire = wires_->take_way(endpoint.cookie, endpoint.address, mca::now(), limit, status);
    endpoint.open = endpoint.wire != nullptr && endpoint.wire->open;
    return endpoint.wire == nullptr ? nullptr : endpoint.wire->way;
} catch (...) {
    status = UCS_ERR_NO_MEMORY;
    return nullptr;
}

/// UCX took something for it.
void Module::took(Endpoint &endpoint) noexcept
{
    if (endpoint.wire != nullptr) {
        Wires::note_used(*endpoint.wire);
    }
    if (endpoint.lost) {
        recover(endpoint);
    }
}

void Module::bury(Endpoint &endpoint) noexcept
{
    if (endpoint.way != nullptr) {
        if (wires_ != nullptr) {
            wires_->let_go(*endpoint.wire, endpoint.way, false);
        }
        by_way_.erase(endpoint.way);
        graveyard_.push_back(endpoint.way);
        endpoint.way = nullptr;
    }
}

void Module::drop_waiting(Endpoint &endpoint) noexcept
{
    for (Fragment *fragment : endpoint.waiting) {
        fragment->status = status_of_lost();
        done_.add(fragment);
    }
    counters_.lost += endpoint.waiting.size();
    endpoint.waiting.clear();
    std::erase(blocked_, &endpoint);
}

void Module::fail(Endpoint &endpoint, ucs_status_t status) noexcept
{
    if (endpoint.broken) {
        return;
    }
    drop_waiting(endpoint);
    if (endpoint.leaving) {
        endpoint.broken = true;
        return;
    }
    ++counters_.broken;
    if (settings_.verbose) {
        const std::string said = last_words();
        std::fprintf(stderr, "btl/ucx[rank %" PRIu32 "]: %s over %s lost its way to %s: %s%s%s\n",
                     OPAL_PROC_MY_NAME.vpid, port_->resource().transport.c_str(),
                     port_->resource().device.c_str(), OPAL_NAME_PRINT(endpoint.process->proc_name),
                     ucs_status_string(status), said.empty() ? "" : "; UCX says: ", said.c_str());
    }
    if (!mca::pml_retransmits() || settings_.verdict_ms == 0) {
        give_up(endpoint);
        return;
    }
    const base::Time present = mca::now();
    if (!endpoint.lost) {
        endpoint.lost = true;
        endpoint.verdict_at = present + base::Duration::from_ms(settings_.verdict_ms);
        lost_.push_back(&endpoint);
    }
    bury(endpoint);
    endpoint.retry_at = present + base::Duration::from_ms(std::int64_t{10} << endpoint.attempts);
    if (endpoint.attempts < most_doublings) {
        ++endpoint.attempts;
    }
}

void Module::give_up(Endpoint &endpoint) noexcept
{
    endpoint.broken = true;
    drop_waiting(endpoint);
    failed_.push_back(&endpoint);
}

/// UCX takes fragments for it: there is a connection again.
void Module::recover(Endpoint &endpoint) noexcept
{
    endpoint.lost = false;
    endpoint.attempts = 0;
    endpoint.verdict_at = base::Time::never();
    std::erase(lost_, &endpoint);
    ++counters_.renewed;
}

void Module::broken(uct_ep_h way, ucs_status_t status) noexcept
{
    // UCX has endpoints of its own, too, for peers that nothing was sent to yet.
    if (const auto found = by_way_.find(way); found != by_way_.end()) {
        fail(*found->second, status);
    } else if (wires_ != nullptr) {
        wires_->broken(way);
    }
}

void Module::wire_leaves(std::uint64_t cookie) noexcept
{
    if (const auto found = by_cookie_.find(cookie); found != by_cookie_.end()) {
        found->second->leaving = true;
    }
}

void Module::look() noexcept
{
    if (OPAL_UNLIKELY(!port_->look_for_connections())) {
        tell_of_want(port_->resource());
    }
    const bool checks = settings_.check_interval_ms != 0 && port_->wants_checks();
    if (OPAL_LIKELY(!checks && lost_.empty())) {
        return;
    }
    const base::Time present = mca::now();
    for (std::size_t i = lost_.size(); i-- > 0;) {
        if (Endpoint &endpoint = *lost_[i]; present >= endpoint.verdict_at) {
            lost_.erase(lost_.begin() + static_cast<std::ptrdiff_t>(i));
            give_up(endpoint);
        }
    }
    if (!checks || present < next_check_) {
        return;
    }
    next_check_ = present + base::Duration::from_ms(settings_.check_interval_ms);
    for (const auto &entry : endpoints_) {
        Endpoint &endpoint = *entry.second;
        if (endpoint.way == nullptr || endpoint.broken || !endpoint.open) {
            continue;
        }
        const ucs_status_t status = uct_ep_check(endpoint.way, 0, nullptr);
        if (status != UCS_OK && status != UCS_INPROGRESS && status != UCS_ERR_NO_RESOURCE) {
            fail(endpoint, status);
        }
    }
}

void Module::say_goodbye(Endpoint &endpoint) noexcept
{
    if (!endpoint.broken && endpoint.open && endpoint.waiting.empty()) {
        const std::uint64_t header = Header{endpoint.cookie, Kind::goodbye, 0}.packed();
        static_cast<void>(
            uct_ep_am_short(endpoint.way, message_id, header, &cookie_, sizeof cookie_));
    }
}

void Module::note_leaving(std::span<const std::byte> payload) noexcept
{
    std::uint64_t cookie = 0;
    if (payload.size() != sizeof cookie) {
        ++counters_.malformed;
        return;
    }
    std::memcpy(&cookie, payload.data(), sizeof cookie);
    wire_leaves(cookie & Header::cookie_mask);
}

} // namespace ft::ucx
