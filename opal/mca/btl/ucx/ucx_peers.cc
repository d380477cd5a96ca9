// The peers of a module: what they publish, and which of their addresses it leads to.
#include "opal/mca/btl/base/entry_points.hpp"
#include "opal/mca/btl/base/network_stack.hpp"
#include "opal/mca/btl/base/pairing.hpp"
#include "opal/mca/btl/base/set_up.hpp"
#include "opal/mca/btl/ucx/ucx.hpp"
#include "opal/mca/show_help.hpp"

namespace ft::ucx {

namespace {

constexpr std::uint32_t modex_magic = 0x55435835; // "UCX5"

} // namespace

bool publish_modules(const mca_btl_base_component_t &component, std::uint64_t cookie)
{
    const auto &modules = btl::all_modules<Module>();
    std::size_t bytes = 16 + btl::NetworkStack::bytes;
    for (const auto &module : modules) {
        const Port &port = module->port();
        bytes += 6 + port.resource().transport.size() + port.line_transport().size() +
                 btl::address_bytes + 5;
        for (const Address *address : {&port.address(), &port.line_address()}) {
            bytes += address->device.size() + address->interface.size();
        }
    }
    std::vector<std::byte> blob(bytes);
    base::WireWriter writer(blob);
    const auto put = [&](std::span<const std::byte> what) {
        writer.u8(static_cast<std::uint8_t>(what.size()));
        writer.bytes(what);
    };
    writer.u32(modex_magic);
    writer.u32(static_cast<std::uint32_t>(modules.size()));
    writer.u64(cookie);
    writer.bytes(btl::own_stack().name());
    for (const auto &module : modules) {
        const Port &port = module->port();
        put(std::as_bytes(std::span(port.resource().transport)));
        put(port.address().device);
        put(port.address().interface);
        put(std::as_bytes(std::span(port.line_transport())));
        put(port.line_address().device);
        put(port.line_address().interface);
        btl::write_address(writer, module->network().address);
        writer.u8(module->network().loopback ? 1 : 0);
        writer.u32(static_cast<std::uint32_t>(port.largest()));
    }
    return btl::publish(component.btl_version, blob);
}

bool published_by(const mca_btl_base_component_t &component, opal_proc_t *process, Published &out)
{
    const auto blob = btl::published_by(component.btl_version, process);
    base::WireReader reader(blob);
    const auto get = [&] {
        const auto view = reader.bytes(reader.u8());
        return Bytes(view.begin(), view.end());
    };
    const auto get_name = [&] {
        const auto view = reader.bytes(reader.u8());
        return std::string(reinterpret_cast<const char *>(view.data()), view.size());
    };
    const std::uint32_t magic = reader.u32();
    const std::uint32_t count = reader.u32();
    out.cookie = reader.u64();
    out.stack = btl::read_stack(reader);
    if (magic != modex_magic || count > most_modules) {
        reader.fail();
    }
    for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
        Published::Place place;
        place.transport = get_name();
        place.at.device = get();
        place.at.interface = get();
        place.line = get_name();
        place.line_at.device = get();
        place.line_at.interface = get();
        place.address = btl::read_address(reader);
        place.loopback = reader.u8() != 0;
        place.largest = reader.u32();
        out.places.push_back(std::move(place));
    }
    return reader.complete() && out.cookie != 0;
}

Endpoint *Module::reach(opal_proc_t *process)
{
    Published peer;
    if (!published_by(*btl_component, process, peer)) {
        return nullptr;
    }
    const Resource &mine = port_->resource();
    const bool same_node = OPAL_PROC_ON_LOCAL_NODE(process->proc_flags);
    const bool same_host = btl::on_this_host(process, peer.stack);
    const auto usable = [&](const Published::Place &place) {
        return place.transport == mine.transport && place.loopback == network_.loopback &&
               (!mine.shared_memory || same_node) && (!place.loopback || same_host) &&
               place.line == port_->line_transport() && port_->reaches(place.at) &&
               (!port_->has_line() || port_->line_reaches(place.line_at));
    };
    const Published::Place *place = nullptr;
    if (mine.shared_memory) { // one device
        const auto found = std::find_if(peer.places.begin(), peer.places.end(), usable);
        place = found == peer.places.end() ? nullptr : &*found;
    } else {
        const auto kin = [&](const Module &other) {
            return other.port().resource().transport == mine.transport;
        };
        place =
            btl::partner(*this, btl::all_modules<Module>(), peer.places, usable, kin, same_host);
    }
    if (place == nullptr) {
        return nullptr;
    }
    if (mine.shared_memory && place->largest != port_->largest()) {
        // UCX writes a message into the receiver's memory without asking how large that is.
        mca::show_help(help_file, "fragments-differ", opal_process_info.nodename,
                       mine.transport.c_str(), OPAL_NAME_PRINT(process->proc_name),
                       std::to_string(port_->largest()).c_str(),
                       std::to_string(place->largest).c_str());
        return nullptr;
    }
    return add_peer(process, peer.cookie, port_->has_line() ? place->line_at : place->at);
}

} // namespace ft::ucx
