#include "opal/mca/btl/ucx/port.hpp"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

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

std::unique_ptr<Port> Port::open(const Resource &resource, std::uint32_t fragment, std::string &why)
{
    std::unique_ptr<Port> port(new Port(resource));
    const ucs_status_t status = port->set_up(fragment, why);
    if (status == UCS_OK) {
        return port;
    }
    if (why.empty()) {
        why = ucs_status_string(status);
        const std::string said = last_words();
        why += said.empty() ? "" : " (UCX says: " + said + ")";
    }
    return nullptr;
}

ucs_status_t Port::set_up(std::uint32_t fragment, std::string &why)
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
    uct_md_config_t *config = nullptr;
    status = uct_md_config_read(resource_.component, nullptr, nullptr, &config);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_md_open(resource_.component, resource_.domain.c_str(), config, &domain_);
    uct_config_release(config);
    if (status != UCS_OK) {
        return status;
    }
    status = open_interface(fragment);
    if (status != UCS_OK) {
        return status;
    }
    status = uct_iface_query(interface_, &attributes_);
    if (status != UCS_OK) {
        return status;
    }
    const auto has = [&](std::uint64_t flags) { return (attributes_.cap.flags & flags) == flags; };
    if (!has(UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_CB_SYNC)) {
        why = "this transport has no active messages";
        return UCS_ERR_UNSUPPORTED;
    }
    if (!has(UCT_IFACE_FLAG_CONNECT_TO_IFACE)) {
        why = "this transport connects endpoints one by one, which btl/ucx cannot; dc and ud use "
              "the same adapters";
        return UCS_ERR_UNSUPPORTED;
    }
    device_address_.resize(attributes_.device_addr_len);
    interface_address_.resize(attributes_.iface_addr_len);
    status = uct_iface_get_device_address(
        interface_, reinterpret_cast<uct_device_addr_t *>(device_address_.data()));
    if (status == UCS_OK) {
        status = uct_iface_get_address(
            interface_, reinterpret_cast<uct_iface_addr_t *>(interface_address_.data()));
    }
    if (status == UCS_OK) {
        const uct_am_callback_t take = [](void *self, void *data, std::size_t length,
                                          unsigned /*flags*/) {
            static_cast<Port *>(self)->events_->take({static_cast<std::byte *>(data), length});
            return UCS_OK;
        };
        status = uct_iface_set_am_handler(interface_, message_id, take, this, 0);
    }
    if (status == UCS_OK) {
        uct_iface_progress_enable(interface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
    return status;
}

ucs_status_t Port::open_interface(std::uint32_t fragment)
{
    uct_iface_config_t *config = nullptr;
    ucs_status_t status =
        uct_md_iface_config_read(domain_, resource_.transport.c_str(), nullptr, nullptr, &config);
    if (status != UCS_OK) {
        return status;
    }
    // Each transport knows some of these names.
    const std::string bytes = std::to_string(fragment);
    for (const char *name : {"SEG_SIZE", "TX_SEG_SIZE"}) {
        static_cast<void>(uct_config_modify(config, name, bytes.c_str()));
    }
    // UCX's tcp would wait in connect(2), for minutes where a network is cut.
    static_cast<void>(uct_config_modify(config, "CONN_NB", "y"));
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS | UCT_IFACE_PARAM_FIELD_FEATURES;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resource_.transport.c_str();
    params.mode.device.dev_name = resource_.device.c_str();
    params.features = UCT_IFACE_FEATURE_AM;
    // Anything but UCS_OK would end the process.
    params.err_handler = [](void *self, uct_ep_h endpoint, ucs_status_t what) {
        if (PortEvents *events = static_cast<Port *>(self)->events_) {
            events->broken(endpoint, what);
        }
        return UCS_OK;
    };
    params.err_handler_arg = this;
    params.err_handler_flags = 0;
    status = uct_iface_open(domain_, worker_, &params, config, &interface_);
    uct_config_release(config);
    return status;
}

Port::~Port()
{
    if (interface_ != nullptr) {
        uct_iface_close(interface_);
    }
    if (domain_ != nullptr) {
        uct_md_close(domain_);
    }
    if (worker_ != nullptr) {
        uct_worker_destroy(worker_);
    }
    if (async_ != nullptr) {
        ucs_async_context_destroy(async_);
    }
}

bool Port::wants_checks() const noexcept
{
    return (attributes_.cap.flags & UCT_IFACE_FLAG_EP_CHECK) != 0 &&
           (attributes_.cap.flags & UCT_IFACE_FLAG_EP_KEEPALIVE) == 0;
}

bool Port::reaches(const Bytes &device, const Bytes &interface) const noexcept
{
    return device.size() == device_address_.size() && interface.size() >= 1 &&
           uct_iface_is_reachable(
               interface_,
               device.empty() ? nullptr
                              : reinterpret_cast<const uct_device_addr_t *>(device.data()),
               reinterpret_cast<const uct_iface_addr_t *>(interface.data())) != 0;
}

uct_ep_h Port::connect(const Bytes &device, const Bytes &interface, ucs_status_t &status) noexcept
{
    uct_ep_params_t params{};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = interface_;
    params.dev_addr = reinterpret_cast<const uct_device_addr_t *>(device.data());
    params.iface_addr = reinterpret_cast<const uct_iface_addr_t *>(interface.data());
    uct_ep_h endpoint = nullptr;
    status = uct_ep_create(&params, &endpoint);
    return status == UCS_OK ? endpoint : nullptr;
}

} // namespace ft::ucx
