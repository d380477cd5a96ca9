#include "opal/mca/btl/ucx/port.hpp"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "opal/mca/clock.hpp"

namespace ft::ucx {

namespace {

std::mutex words_lock;
std::array<char, 256> words{};

ucs_log_func_rc_t keep(const char * /*file*/, unsigned /*line*/, const char * /*function*/,
                       ucs_log_level_t level, const ucs_log_component_config_t * /*component*/,
                       const char *message, va_list arguments)
{
    if (level > UCS_LOG_LEVEL_DIAG) {
        return UCS_LOG_FUNC_RC_CONTINUE; // asked for, or not printed at all
    }
    const std::scoped_lock guard(words_lock);
    std::vsnprintf(words.data(), words.size(), message, arguments);
    return UCS_LOG_FUNC_RC_STOP;
}

} // namespace

void silence_ucx() noexcept
{
    static const bool once = [] {
        if (std::getenv("UCX_LOG_LEVEL") == nullptr) {
            ucs_log_push_handler(keep);
        }
        return true;
    }();
    static_cast<void>(once);
}

std::string last_words()
{
    const std::scoped_lock guard(words_lock);
    return words.data();
}

std::unique_ptr<Port> Port::open(const Resource &resource, const std::vector<Resource> &all,
                                 ConnectBy connect, std::uint32_t fragment, std::string &why)
{
    std::unique_ptr<Port> port(new Port(resource));
    const ucs_status_t status =
        port->listeners_.during([&] { return port->set_up(all, connect, fragment, why); });
    if (status == UCS_OK) {
        port->listeners_.adopt(port->main_.address.interface);
        port->listeners_.adopt(port->line_.address.interface);
        return port;
    }
    if (why.empty()) {
        why = ucs_status_string(status);
        const std::string said = last_words();
        why += said.empty() ? "" : " (UCX says: " + said + ")";
    }
    return nullptr;
}

ucs_status_t Port::set_up(const std::vector<Resource> &all, ConnectBy connect,
                          std::uint32_t fragment, std::string &why)
{
    // Without threads and signals: connections are taken in when somebody looks.
    ucs_status_t status = ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async_);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker_);
    if (status != UCS_OK) {
        return status;
    }
    status = open_side(main_, resource_, fragment);
    if (status != UCS_OK) {
        return status;
    }
    if (!main_.can(UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_CB_SYNC)) {
        why = "this transport has no active messages";
        return UCS_ERR_UNSUPPORTED;
    }
    const bool to_interfaces = main_.can(UCT_IFACE_FLAG_CONNECT_TO_IFACE);
    const bool to_endpoints = main_.can(UCT_IFACE_FLAG_CONNECT_TO_EP);
    if (!to_interfaces && (!to_endpoints || connect == ConnectBy::interfaces)) {
        why = to_endpoints ? "this transport connects endpoints one to one alone, and "
                             "btl_ucx_connect forbids that"
                           : "this transport connects neither to interfaces nor endpoints one to "
                             "one";
        return UCS_ERR_UNSUPPORTED;
    }
    if (to_endpoints && (!to_interfaces || connect == ConnectBy::endpoints)) {
        status = set_up_line(all, why);
        if (status != UCS_OK) {
            return status;
        }
    }
    const uct_am_callback_t take = [](void *self, void *data, std::size_t length,
                                      unsigned /*flags*/) {
        static_cast<Port *>(self)->events_->take({static_cast<std::byte *>(data), length});
        return UCS_OK;
    };
    status = uct_iface_set_am_handler(main_.interface, message_id, take, this, 0);
    if (status == UCS_OK) {
        uct_iface_progress_enable(main_.interface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
    return status;
}

ucs_status_t Port::set_up_line(const std::vector<Resource> &all, std::string &why)
{
    const Resource *resource = line_for(all, resource_);
    if (resource == nullptr) {
        why = "this transport connects endpoints one to one, for which btl/ucx needs ud on the "
              "same device, and UCX has none there";
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t status = open_side(line_, *resource, 0);
    if (status != UCS_OK) {
        return status;
    }
    line_transport_ = resource->transport;
    const uct_am_callback_t take = [](void *self, void *data, std::size_t length,
                                      unsigned /*flags*/) {
        if (LineEvents *events = static_cast<Port *>(self)->line_events_) {
            events->line_take({static_cast<std::byte *>(data), length});
        }
        return UCS_OK;
    };
    status = uct_iface_set_am_handler(line_.interface, line_message_id, take, this, 0);
    if (status == UCS_OK) {
        uct_iface_progress_enable(line_.interface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
    return status;
}

ucs_status_t Port::open_side(Side &side, const Resource &resource, std::uint32_t fragment)
{
    uct_md_config_t *config = nullptr;
    ucs_status_t status = uct_md_config_read(resource.component, nullptr, nullptr, &config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_md_open(resource.component, resource.domain.c_str(), config, &side.domain);
    uct_config_release(config);
    if (status == UCS_OK) {
        status = open_interface(side, resource, fragment);
    }
    if (status == UCS_OK) {
        status = uct_iface_query(side.interface, &side.attributes);
    }
    if (status != UCS_OK) {
        return status;
    }
    side.address.device.resize(side.attributes.device_addr_len);
    side.address.interface.resize(side.attributes.iface_addr_len);
    status = uct_iface_get_device_address(
        side.interface, reinterpret_cast<uct_device_addr_t *>(side.address.device.data()));
    if (status == UCS_OK && !side.address.interface.empty()) {
        status = uct_iface_get_address(
            side.interface, reinterpret_cast<uct_iface_addr_t *>(side.address.interface.data()));
    }
    return status;
}

ucs_status_t Port::open_interface(Side &side, const Resource &resource, std::uint32_t fragment)
{
    uct_iface_config_t *config = nullptr;
    ucs_status_t status = uct_md_iface_config_read(side.domain, resource.transport.c_str(), nullptr,
                                                   nullptr, &config);
    if (status != UCS_OK) {
        return status;
    }
    // Each transport knows some of these names.
    const std::string bytes = std::to_string(fragment);
    for (const char *name : {"MM_SEG_SIZE", "SEG_SIZE", "TX_SEG_SIZE"}) {
        if (fragment != 0) {
            static_cast<void>(uct_config_modify(config, name, bytes.c_str()));
        }
    }
    // UCX's tcp would wait in connect(2), for minutes where a network is cut.
    static_cast<void>(uct_config_modify(config, "CONN_NB", "y"));
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS | UCT_IFACE_PARAM_FIELD_FEATURES;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resource.transport.c_str();
    params.mode.device.dev_name = resource.device.c_str();
    params.features = UCT_IFACE_FEATURE_AM;
    // Anything but UCS_OK would end the process.
    params.err_handler = [](void *self, uct_ep_h endpoint, ucs_status_t what) {
        if (PortEvents *events = static_cast<Port *>(self)->events_) {
            events->broken(endpoint, what);
        }
        return UCS_OK;
    };
    if (&side == &line_) {
        params.err_handler = [](void *self, uct_ep_h endpoint, ucs_status_t what) {
            if (LineEvents *events = static_cast<Port *>(self)->line_events_) {
                events->line_broken(endpoint, what);
            }
            return UCS_OK;
        };
    }
    params.err_handler_arg = this;
    params.err_handler_flags = 0;
    status = uct_iface_open(side.domain, worker_, &params, config, &side.interface);
    uct_config_release(config);
    return status;
}

void Port::Side::close() noexcept
{
    if (interface != nullptr) {
        uct_iface_close(interface);
    }
    if (domain != nullptr) {
        uct_md_close(domain);
    }
}

Port::~Port()
{
    line_.close();
    main_.close();
    if (worker_ != nullptr) {
        uct_worker_destroy(worker_);
    }
    if (async_ != nullptr) {
        ucs_async_context_destroy(async_);
    }
}

bool Port::take_connections(std::size_t waiting) noexcept
{
    const base::Time present = mca::now();
    if (present < next_look_) {
        return true;
    }
    // UCX takes all that wait, and ends the process where it has no descriptor for one of them.
    const MarksWhatOpens marks(listeners_.any(), waiting + at_once);
    if (marks.free()) {
        ucs_async_poll(async_);
    } else {
        next_look_ = present + pause;
    }
    return marks.free();
}

bool Port::wants_checks() const noexcept
{
    return main_.can(UCT_IFACE_FLAG_EP_CHECK) && !main_.can(UCT_IFACE_FLAG_EP_KEEPALIVE);
}

bool Port::Side::reaches(const Address &peer) const noexcept
{
    // Where endpoints are all that can be reached an interface may have no address.
    return peer.device.size() == address.device.size() &&
           (!peer.interface.empty() || !can(UCT_IFACE_FLAG_CONNECT_TO_IFACE)) &&
           uct_iface_is_reachable(
               interface,
               peer.device.empty()
                   ? nullptr
                   : reinterpret_cast<const uct_device_addr_t *>(peer.device.data()),
               peer.interface.empty()
                   ? nullptr
                   : reinterpret_cast<const uct_iface_addr_t *>(peer.interface.data())) != 0;
}

uct_ep_h Port::Side::connect(const Address &peer, ucs_status_t &status) const noexcept
{
    uct_ep_params_t params{};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = interface;
    params.dev_addr = reinterpret_cast<const uct_device_addr_t *>(peer.device.data());
    params.iface_addr = reinterpret_cast<const uct_iface_addr_t *>(peer.interface.data());
    uct_ep_h endpoint = nullptr;
    status = uct_ep_create(&params, &endpoint);
    return status == UCS_OK ? endpoint : nullptr;
}

uct_ep_h Port::make_endpoint(ucs_status_t &status) noexcept
{
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = main_.interface;
    uct_ep_h endpoint = nullptr;
    status = uct_ep_create(&params, &endpoint);
    return status == UCS_OK ? endpoint : nullptr;
}

Bytes Port::endpoint_address(uct_ep_h endpoint) const
{
    Bytes address(main_.attributes.ep_addr_len);
    if (uct_ep_get_address(endpoint, reinterpret_cast<uct_ep_addr_t *>(address.data())) != UCS_OK) {
        address.clear();
    }
    return address;
}

} // namespace ft::ucx
