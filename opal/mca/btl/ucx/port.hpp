/// \file
/// An open interface of UCT: a device through a transport, with a worker, a memory domain and a
/// place for its events of its own, so that one lock guards all that UCX keeps for it. Where
/// endpoints are connected one to one there is a second interface beside it, the line, which
/// carries the messages that they need for that. No Open MPI here.
#pragma once
#include <ucs/async/async_fwd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/mca/btl/ucx/address.hpp"
#include "opal/mca/btl/ucx/connect_by.hpp"
#include "opal/mca/btl/ucx/descriptors.hpp"
#include "opal/mca/btl/ucx/transports.hpp"

namespace ft::ucx {

/// The active message of every fragment.
inline constexpr std::uint8_t message_id = 0;
/// The active message of the line.
inline constexpr std::uint8_t line_message_id = 1;

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

/// Who is told of what happens on the line, from Port::progress() and from sends on it. UCX is in
/// the middle of something: no endpoint must be destroyed.
class LineEvents {
  public:
    LineEvents() = default;
    LineEvents(const LineEvents &) = delete;
    LineEvents &operator=(const LineEvents &) = delete;
    virtual ~LineEvents() = default;
    virtual void line_take(std::span<const std::byte> message) noexcept = 0;
    virtual void line_broken(uct_ep_h endpoint, ucs_status_t status) noexcept = 0;
};

class Port {
  public:
    /// \param fragment bytes of the longest active message wanted, where the transport can be told
    /// \param all what the host has: one of it may have to carry the line \return nullptr, and why
    static std::unique_ptr<Port> open(const Resource &resource, const std::vector<Resource> &all,
                                      ConnectBy connect, std::uint32_t fragment, std::string &why);
    Port(const Port &) = delete;
    Port &operator=(const Port &) = delete;
    /// All endpoints must have been destroyed.
    ~Port();

    /// To be called once, before progress() and connect().
    void tell(PortEvents &events) noexcept { events_ = &events; }
    void tell_of_line(LineEvents *events) noexcept { line_events_ = events; }

    [[nodiscard]] const Resource &resource() const noexcept { return resource_; }
    [[nodiscard]] const uct_iface_attr_t &attributes() const noexcept { return main_.attributes; }
    [[nodiscard]] const Address &address() const noexcept { return main_.address; }
    /// Bytes of the longest active message.
    [[nodiscard]] std::size_t largest() const noexcept { return main_.attributes.cap.am.max_bcopy; }
    /// Whether a look for messages is a call into the kernel.
    [[nodiscard]] bool asks_kernel() const noexcept { return resource_.transport == "tcp"; }
    /// Whether a peer's death is to be asked after: the transport does not find it out by itself.
    [[nodiscard]] bool wants_checks() const noexcept;
    [[nodiscard]] bool reaches(const Address &peer) const noexcept { return main_.reaches(peer); }
    /// Begins to connect to an interface. \return nullptr, and the status
    uct_ep_h connect(const Address &peer, ucs_status_t &status) noexcept
    {
        const MarksWhatOpens marks(listeners_.any(), at_once);
        return main_.connect(peer, status);
    }

    /// Whether endpoints are connected one to one, and there is a line.
    [[nodiscard]] bool has_line() const noexcept { return line_.interface != nullptr; }
    /// The line's transport, empty when there is none.
    [[nodiscard]] const std::string &line_transport() const noexcept { return line_transport_; }
    [[nodiscard]] const Address &line_address() const noexcept { return line_.address; }
    [[nodiscard]] bool line_reaches(const Address &peer) const noexcept
    {
        return line_.reaches(peer);
    }
    uct_ep_h connect_line(const Address &peer, ucs_status_t &status) noexcept
    {
        const MarksWhatOpens marks(listeners_.any(), at_once);
        return line_.connect(peer, status);
    }
    /// Connects an endpoint to one of a peer's interface.
    ucs_status_t connect_endpoint(uct_ep_h way, const Bytes &device, const Bytes &endpoint) noexcept
    {
        const MarksWhatOpens marks(listeners_.any(), at_once);
        return uct_ep_connect_to_ep(way, reinterpret_cast<const uct_device_addr_t *>(device.data()),
                                    reinterpret_cast<const uct_ep_addr_t *>(endpoint.data()));
    }
    /// An endpoint that leads nowhere yet. \return nullptr, and the status
    uct_ep_h make_endpoint(ucs_status_t &status) noexcept;
    /// Where that endpoint is, empty when UCX does not say.
    [[nodiscard]] Bytes endpoint_address(uct_ep_h endpoint) const;

    /// Sends, receives, completes. \return whether anything was done
    unsigned progress() noexcept { return uct_worker_progress(worker_); }
    /// Takes in new connections. Seldom needed. \return false: it was found just now that
    /// some wait for free descriptors
    bool look_for_connections() noexcept
    {
        if (listeners_.none()) {
            ucs_async_poll(async_);
        } else if (const std::size_t waiting = listeners_.waiting(); waiting != 0) [[unlikely]] {
            return take_connections(waiting);
        }
        return true;
    }

  private:
    /// Descriptors of a connection, or of connections that come while others are taken.
    static constexpr std::size_t at_once = 4;
    /// From a look that found too few free descriptors to the next.
    static constexpr base::Duration pause = base::Duration::from_ms(100);
    explicit Port(Resource resource) : resource_(std::move(resource)) {}
    bool take_connections(std::size_t waiting) noexcept;
    /// An interface of UCT and what it stands on.
    struct Side {
        uct_md_h domain = nullptr;
        uct_iface_h interface = nullptr;
        uct_iface_attr_t attributes{};
        Address address;

        [[nodiscard]] bool can(std::uint64_t flags) const noexcept
        {
            return (attributes.cap.flags & flags) == flags;
        }
        [[nodiscard]] bool reaches(const Address &peer) const noexcept;
        uct_ep_h connect(const Address &peer, ucs_status_t &status) const noexcept;
        void close() noexcept;
    };

    ucs_status_t set_up(const std::vector<Resource> &all, ConnectBy connect, std::uint32_t fragment,
                        std::string &why);
    ucs_status_t set_up_line(const std::vector<Resource> &all, std::string &why);
    ucs_status_t open_side(Side &side, const Resource &resource, std::uint32_t fragment);
    ucs_status_t open_interface(Side &side, const Resource &resource, std::uint32_t fragment);

    const Resource resource_;
    PortEvents *events_ = nullptr;
    LineEvents *line_events_ = nullptr;
    ucs_async_context_t *async_ = nullptr;
    uct_worker_h worker_ = nullptr;
    Listeners listeners_;
    base::Time next_look_;
    Side main_;
    Side line_;
    std::string line_transport_;
};

/// Keeps what UCX would print from the program's standard output, unless the user has set
/// UCX_LOG_LEVEL. Once for each process.
void silence_ucx() noexcept;
/// What UCX said last, empty when nothing. For a message to the user.
std::string last_words();

} // namespace ft::ucx
