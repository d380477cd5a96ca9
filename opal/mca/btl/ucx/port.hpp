/// \file
/// An open interface of UCT: a device through a transport, with a worker, a memory domain and a
/// place for its events of its own, so that one lock guards all that UCX keeps for it. No Open MPI
/// here.
#pragma once
#include <ucs/async/async_fwd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opal/mca/btl/ucx/transports.hpp"

namespace ft::ucx {

using Bytes = std::vector<std::byte>;

/// The active message of every fragment.
inline constexpr std::uint8_t message_id = 0;

/// Who is told what happens. Called from Port::progress() and from sends; the caller of these holds
/// its lock.
class PortEvents {
  public:
    PortEvents() = default;
    PortEvents(const PortEvents &) = delete;
    PortEvents &operator=(const PortEvents &) = delete;
    virtual ~PortEvents() = default;
    /// An active message, readable during the call.
    virtual void take(std::span<const std::byte> message) noexcept = 0;
    /// Nothing goes through that endpoint any more.
    virtual void broken(uct_ep_h endpoint, ucs_status_t status) noexcept = 0;
};

class Port {
  public:
    /// \param fragment bytes of the longest active message wanted, where the transport can be told
    /// \return nullptr, and why
    static std::unique_ptr<Port> open(const Resource &resource, std::uint32_t fragment,
                                      std::string &why);
    Port(const Port &) = delete;
    Port &operator=(const Port &) = delete;
    /// All endpoints must have been destroyed.
    ~Port();

    /// To be called once, before progress() and connect().
    void tell(PortEvents &events) noexcept { events_ = &events; }

    [[nodiscard]] const Resource &resource() const noexcept { return resource_; }
    [[nodiscard]] const uct_iface_attr_t &attributes() const noexcept { return attributes_; }
    [[nodiscard]] const Bytes &device_address() const noexcept { return device_address_; }
    [[nodiscard]] const Bytes &interface_address() const noexcept { return interface_address_; }
    /// Bytes of the longest active message.
    [[nodiscard]] std::size_t largest() const noexcept { return attributes_.cap.am.max_bcopy; }
    /// Whether a look for messages is a call into the kernel.
    [[nodiscard]] bool asks_kernel() const noexcept { return resource_.transport == "tcp"; }
    /// Whether a peer's death is to be asked after: the transport does not find it out by itself.
    [[nodiscard]] bool wants_checks() const noexcept;
    [[nodiscard]] bool reaches(const Bytes &device, const Bytes &interface) const noexcept;
    /// Begins to connect. \return nullptr, and the status
    uct_ep_h connect(const Bytes &device, const Bytes &interface, ucs_status_t &status) noexcept;

    /// Sends, receives, completes. \return whether anything was done
    unsigned progress() noexcept { return uct_worker_progress(worker_); }
    /// Takes in new connections. Seldom needed.
    void look_for_connections() noexcept { ucs_async_poll(async_); }

  private:
    explicit Port(Resource resource) : resource_(std::move(resource)) {}
    ucs_status_t set_up(std::uint32_t fragment, std::string &why);
    ucs_status_t open_interface(std::uint32_t fragment);

    const Resource resource_;
    PortEvents *events_ = nullptr;
    ucs_async_context_t *async_ = nullptr;
    uct_worker_h worker_ = nullptr;
    uct_md_h domain_ = nullptr;
    uct_iface_h interface_ = nullptr;
    uct_iface_attr_t attributes_{};
    Bytes device_address_;
    Bytes interface_address_;
};

/// Keeps what UCX would print from the program's standard output, unless the user has set
/// UCX_LOG_LEVEL. Once for each process.
void silence_ucx() noexcept;
/// What UCX said last, empty when nothing. For a message to the user.
std::string last_words();

} // namespace ft::ucx
