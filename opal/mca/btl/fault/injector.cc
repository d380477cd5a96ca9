#include "opal/mca/btl/fault/injector.hpp"

#include "opal/ft/reliability/header.hpp"

#include <map>

namespace ft::fault {

Injector *the_injector = nullptr;

base::Time now() noexcept
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return base::Time::from_ns(std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec);
}

bool Injector::wrap(const std::vector<std::string> &order)
{
    std::map<std::string, unsigned> instances;
    std::map<std::string, std::vector<Btl *>> modules;
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const char *name = selected->btl_component->btl_version.mca_component_name;
        if (settings_.has_btl(name)) {
            modules[name].push_back(selected->btl_module);
        }
    }
    bool found = settings_.kill_after == 0;
    for (const std::string &name : order) {
        unsigned instance = 0;
        for (Btl *btl : modules[name]) {
            const bool dies =
                settings_.kill_after != 0 &&
                (settings_.kills_any() || settings_.kill_btl.empty()
                     ? settings_.kills_any() || !found
                     : settings_.kill_btl == name && settings_.kill_instance == instance);
            found = found || dies;
            paths_.push_back(
                std::make_unique<Path>(*this, btl, name + ":" + std::to_string(instance), dies));
            ++instance;
        }
        modules.erase(name);
    }
    return found;
}

void Injector::spare_others(const Path *dead)
{
    for (const auto &path : paths_) {
        if (path.get() != dead) {
            path->life_ = PathLife(0, base::Duration::zero());
        }
    }
}

std::string Injector::path_names() const
{
    std::string names;
    for (const auto &path : paths_) {
        names += (names.empty() ? "" : " ") + path->name_;
    }
    return names.empty() ? "none" : names;
}

Path *Injector::find(const Btl *btl) const noexcept
{
    for (const auto &path : paths_) {
        if (path->btl() == btl) {
            return path.get();
        }
    }
    return nullptr;
}

void Injector::hook_receiver(Tag tag)
{
    // BTLs talk to themselves over the tags below: no fragment of the PML.
    if (!settings_.on_receive || tag < MCA_BTL_TAG_PML || tag >= MCA_BTL_TAG_MAX) {
        return;
    }
    mca_btl_active_message_callback_t &trigger = mca_btl_base_active_message_trigger[tag];
    if (trigger.cbfunc == nullptr || trigger.cbfunc == on_receive) {
        return;
    }
    receivers_[tag] = trigger;
    trigger.cbfunc = on_receive;
}

bool Injector::is_subject(Tag tag, const void *first_byte) const
{
    if (tag < MCA_BTL_TAG_PML) {
        return false;
    }
    if (settings_.what == What::all) {
        return true;
    }
    // The first byte of pml/dr's wire header. What begins with anything else is another PML's
    // (ob1's first byte is its tag, 65 and above), where nothing is known to be an acknowledgement.
    using reliability::Kind;
    const Kind kind =
        first_byte == nullptr ? Kind::ordered : *static_cast<const Kind *>(first_byte);
    if (kind == Kind::probe || kind == Kind::probe_reply) {
        return false;
    }
    return (settings_.what == What::acks) == (kind == Kind::ack);
}

int Injector::progress()
{
    // A callback of ours may call opal_progress.
    if (in_progress_.test_and_set(std::memory_order_acquire)) {
        return 0;
    }
    int events = 0;
    for (const auto &path : paths_) {
        events += path->progress();
    }
    if (settings_.count_interval > base::Duration::zero()) {
        print_counters_so_far();
    }
    in_progress_.clear(std::memory_order_release);
    return events;
}

void Injector::restore()
{
    for (std::size_t tag = 0; tag < receivers_.size(); ++tag) {
        mca_btl_active_message_callback_t &trigger = mca_btl_base_active_message_trigger[tag];
        if (receivers_[tag].cbfunc != nullptr && trigger.cbfunc == on_receive) {
            trigger = receivers_[tag];
        }
    }
    for (const auto &path : paths_) {
        path->restore();
    }
}

void Injector::print_counters() noexcept
{
    if (!settings_.count || printed_ || process_ != getpid()) {
        return;
    }
    printed_ = true;
    print_line("");
}

void Injector::print_counters_so_far() noexcept
{
    const base::Time present = now();
    if (!settings_.count || present < next_print_) {
        return;
    }
    next_print_ = present + settings_.count_interval;
    const std::lock_guard guard(mutex_);
    print_line(" so far");
}

void Injector::print_line(const char *when) noexcept
{
    const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::array<char, 512> line{};
    const int length = snprintf(
        line.data(), line.size(),
        "btl/fault[rank %u]%s: fragments=%llu dropped=%llu duplicated=%llu corrupted=%llu "
        "reordered=%llu delayed=%llu killed=%llu\n",
        rank_, when, n(counters_.fragments), n(counters_.dropped), n(counters_.duplicated),
        n(counters_.corrupted), n(counters_.reordered), n(counters_.delayed), n(counters_.killed));
    // One write: the lines of several ranks must not run into each other.
    if (length > 0 && write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length)) < 0) {
        return;
    }
}

} // namespace ft::fault
