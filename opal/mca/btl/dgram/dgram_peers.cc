// The peers of a module: what they publish, and which of their addresses it leads to.
#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/network_stack.hpp"
#include "opal/mca/btl/base/pairing.hpp"
#include "opal/mca/btl/base/set_up.hpp"
#include "opal/mca/btl/dgram/dgram.hpp"
#include "opal/mca/selected_pml.hpp"

namespace ft::dgram {

namespace {

constexpr std::uint32_t modex_magic = 0x44475235; // "DGR5"
constexpr std::size_t provider_bytes = 32;        ///< of its name, zeros after it
constexpr std::size_t place_bytes =
    provider_bytes + Address::most_bytes + 1 + btl::address_bytes + 4 + 1;

/// Whether the PML that was selected retransmits; says why not, once for each host. Nothing holds
/// the processes together any more when this is asked: the first to find no way ends the job,
/// perhaps before another one has come here.
bool used_by_dr() noexcept
{
    static const bool does = [] {
        if (mca::pml_retransmits()) {
            return true;
        }
        btl::complain_of_host(help_file, "wrong-pml", mca::selected_pml());
        return false;
    }();
    return does;
}

/// Says once that a peer's datagrams are of another kind than all of ours. Both say so, for who is
/// first to find no way to the other ends the job.
void tell_other_provider(const opal_proc_t *process, const Published &peer) noexcept
{
    static bool told = false;
    const std::string &mine = btl::all_modules<Module>().front()->transport().provider();
    const bool alike =
        std::any_of(peer.places.begin(), peer.places.end(),
                    [&](const Published::Place &place) { return place.provider == mine; });
    if (told || alike || peer.places.empty()) {
        return;
    }
    told = true;
    const char *host = process->proc_hostname;
    mca::show_help(help_file, "other-provider", opal_process_info.nodename, mine.c_str(),
                   OPAL_NAME_PRINT(process->proc_name), host == nullptr ? "another host" : host,
                   peer.places.front().provider.c_str());
}

} // namespace

bool publish_modules(std::uint64_t cookie)
{
    const auto &modules = btl::all_modules<Module>();
    std::vector<std::byte> blob(16 + btl::NetworkStack::bytes + modules.size() * place_bytes);
    base::WireWriter writer(blob);
    writer.u32(modex_magic);
    writer.u32(static_cast<std::uint32_t>(modules.size()));
    writer.u64(cookie);
    writer.bytes(btl::own_stack().name());
    for (const auto &module : modules) {
        const Address &address = module->transport().address();
        std::array<std::byte, provider_bytes> name{};
        const std::string &given = module->transport().provider();
        std::memcpy(name.data(), given.data(), std::min(given.size(), name.size() - 1));
        writer.bytes(name);
        writer.bytes(address.bytes);
        writer.u8(address.length);
        btl::write_address(writer, module->network().address);
        writer.u32(static_cast<std::uint32_t>(module->transport().largest()));
        writer.u8(module->network().loopback ? 1 : 0);
    }
    return btl::publish(mca_btl_dgram_component.btl_version, blob);
}

bool published_by(opal_proc_t *process, Published &out)
{
    const auto blob = btl::published_by(mca_btl_dgram_component.btl_version, process);
    base::WireReader reader(blob);
    const std::uint32_t magic = reader.u32();
    const std::uint32_t count = reader.u32();
    out.cookie = reader.u64();
    out.stack = btl::read_stack(reader);
    if (magic != modex_magic || count > most_modules) {
        reader.fail();
    }
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        Published::Place place;
        const auto name = reader.bytes(provider_bytes);
        const auto *text = reinterpret_cast<const char *>(name.data());
        place.provider.assign(text, std::find(text, text + name.size(), '\0'));
        const auto address = reader.bytes(Address::most_bytes);
        std::copy(address.begin(), address.end(), place.transport.bytes.begin());
        place.transport.length = reader.u8();
        place.address = btl::read_address(reader);
        place.largest = reader.u32();
        place.loopback = reader.u8() != 0;
        if (place.transport.length <= Address::most_bytes && place.largest >= least_datagram) {
            out.places.push_back(place);
        }
    }
    return reader.complete() && out.cookie != 0;
}

Endpoint *Module::reach(opal_proc_t *process)
{
    Published peer;
    if (!used_by_dr() || !published_by(process, peer)) {
        return nullptr;
    }
    const bool same_host = btl::on_this_host(process, peer.stack);
    const auto usable = [&](const Published::Place &place) {
        return place.provider == transport_->provider() && place.loopback == network_.loopback &&
               (!place.loopback || same_host) && place.address.is_v4() == network_.address.is_v4();
    };
    const Published::Place *place = btl::partner(
        *this, btl::all_modules<Module>(), peer.places, usable, [](const Module &) { return true; },
        same_host);
    if (place == nullptr) {
        tell_other_provider(process, peer);
        return nullptr;
    }
    return add_peer(process, place->transport, peer.cookie, place->largest);
}

Endpoint *Module::add_peer(opal_proc_t *process, const Address &address, std::uint64_t key,
                           std::uint32_t announced)
{
    const mca::Guard guard(lock_);
    const auto size = static_cast<std::uint32_t>(transport_->largest());
    auto fresh = std::make_unique<Endpoint>(
        std::min(size, announced),
        base::Duration::from_ms(std::max<std::uint32_t>(settings_.size_interval_ms, 1)));
    Endpoint *endpoint = fresh.get();
    endpoint->process = process;
    endpoint->address = address;
    endpoint->key = key;
    endpoint->sender = static_cast<std::uint32_t>(key);
    endpoint->waiting.reserve(2 * batch_);
    by_sender_[endpoint->sender] = endpoint;
    endpoints_.emplace(endpoint, std::move(fresh));
    return endpoint;
}

void Module::remove_peer(Endpoint *endpoint) noexcept
{
    const mca::Guard guard(lock_);
    flush_locked(*endpoint);
    for (Fragment *fragment : endpoint->waiting) {
        give_back(fragment);
    }
    counters_.narrowed += endpoint->search.times_lowered();
    std::erase(unflushed_, endpoint);
    std::erase(used_, endpoint);
    std::erase(failed_, endpoint);
    if (const auto found = by_sender_.find(endpoint->sender);
        found != by_sender_.end() && found->second == endpoint) {
        by_sender_.erase(found);
    }
    endpoints_.erase(endpoint);
}

} // namespace ft::dgram
