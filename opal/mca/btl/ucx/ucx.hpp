/// \file
/// btl/ucx: fragments as active messages of UCT, UCX's lower layer. What it is for and how it is
/// used is in mca_btl_ucx.7, how it works in PROTOCOL.md.
#pragma once
#include "opal/mca/btl/ucx/library.hpp"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "opal/ft/base/time.hpp"
#include "opal/mca/btl/base/fragments.hpp"
#include "opal/mca/btl/base/interfaces.hpp"
#include "opal/mca/btl/base/network_stack.hpp"
#include "opal/mca/btl/ucx/message.hpp"
#include "opal/mca/btl/ucx/port.hpp"
#include "opal/mca/btl/ucx/wires.hpp"
#include "opal/mca/lock.hpp"

namespace ft::ucx {

class Module;
struct Endpoint;

/// A fragment of the PML's with room for the header in front of it.
struct Fragment {
    mca_btl_base_descriptor_t descriptor;
    mca_btl_base_segment_t segments[1];
    Module *module;
    Endpoint *endpoint;
    Fragment *next; ///< in a DoneList
    int status;
    bool small; ///< which pool it came from
    alignas(8) std::uint64_t header;
    [[nodiscard]] std::byte *data() noexcept { return reinterpret_cast<std::byte *>(this + 1); }
    [[nodiscard]] std::size_t bytes() const noexcept { return segments[0].seg_len; }
};

/// Fragments whose callback is due, in order.
class DoneList {
  public:
    void add(Fragment *fragment) noexcept
    {
        fragment->next = nullptr;
        (last_ == nullptr ? first_ : last_->next) = fragment;
        last_ = fragment;
    }
    /// \return nullptr when there is none
    Fragment *take() noexcept
    {
        Fragment *fragment = first_;
        if (fragment != nullptr) {
            first_ = fragment->next;
            last_ = first_ == nullptr ? nullptr : last_;
        }
        return fragment;
    }
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

  private:
    Fragment *first_ = nullptr;
    Fragment *last_ = nullptr;
};

/// The way from a module to one peer.
struct Endpoint {
    opal_proc_t *process = nullptr;
    std::uint64_t cookie = 0;  ///< the peer's
    Address address;           ///< the peer's: of its line where there is one
    uct_ep_h way = nullptr;    ///< made at first contact
    Wire *wire = nullptr;      ///< what connects it, if that takes messages
    bool open = false;         ///< UCX may be given what is to go there
    bool broken = false;       ///< for good
    bool lost = false;         ///< its connection broke, and another one is tried
    bool leaving = false;      ///< the peer has said so: what breaks now is no failure
    std::uint8_t attempts = 0; ///< since it was lost, saturating
    base::Time retry_at;       ///< not before
    base::Time verdict_at = base::Time::never(); ///< broken if still lost then
    std::vector<Fragment *> waiting;             ///< UCX has no room for them
};

struct ModuleCounters {
    std::uint64_t sent = 0;
    std::uint64_t delivered = 0;
    std::uint64_t waited = 0;
    std::uint64_t full = 0;
    std::uint64_t malformed = 0;
    std::uint64_t strangers = 0;
    std::uint64_t no_receiver = 0;
    std::uint64_t broken = 0;
    std::uint64_t renewed = 0;
    std::uint64_t lost = 0;
    std::uint64_t wired = 0;
};

/// Fragments that wait for one peer before the PML is told to wait itself.
inline constexpr std::size_t most_waiting = 64;

/// What the PML is told of a fragment that went down with its connection.
int status_of_lost() noexcept;

class Module final : public mca_btl_base_module_t, private PortEvents, private WireEvents {
  public:
    using Endpoint = ucx::Endpoint;
    using Fragment = ucx::Fragment;

    /// \param network the one of the device; nameless for shared memory, or when it has no address
    Module(std::unique_ptr<Port> port, btl::Interface network, mca_btl_base_component_t &component,
           const Settings &settings, std::uint64_t cookie, unsigned index);
    ~Module() override;

    [[nodiscard]] const Port &port() const noexcept { return *port_; }
    [[nodiscard]] const btl::Interface &network() const noexcept { return network_; }

    /// \return the way to that peer, nullptr when there is none
    Endpoint *reach(opal_proc_t *process);
    /// \return the new endpoint, owned by the module
    Endpoint *add_peer(opal_proc_t *process, std::uint64_t cookie, Address address);
    void remove_peer(Endpoint *endpoint) noexcept;

    Fragment *allocate(std::size_t bytes, std::uint32_t flags) noexcept
    {
        return fragments_.get(bytes, flags);
    }
    void give_back(Fragment *fragment) noexcept { fragments_.put(fragment); }
    int send(Endpoint &endpoint, Fragment *fragment, mca_btl_base_tag_t tag) noexcept;
    int send_now(Endpoint &endpoint, opal_convertor_t *convertor, const void *header,
                 std::size_t header_bytes, std::size_t payload_bytes,
                 mca_btl_base_tag_t tag) noexcept;
    /// \param alone no other module wants its turn
    int progress(bool alone) noexcept;
    /// Prints the counters if the user asked for them.
    void finish() const noexcept;

    mca_btl_base_module_error_cb_fn_t on_error = nullptr;

  private:
    enum class Posted : std::uint8_t {
        sent, ///< its bytes are free
        full, ///< later
        broken
    };
    void take(std::span<const std::byte> message) noexcept override;
    void broken(uct_ep_h way, ucs_status_t status) noexcept override;
    void wire_broken(uct_ep_h way, ucs_status_t status) noexcept override { broken(way, status); }
    void wire_leaves(std::uint64_t cookie) noexcept override;

    enum class Ready : std::uint8_t {
        yes,
        later, ///< not while UCX delivers
        lost,
        broken
    };
    Ready ready(Endpoint &endpoint) noexcept;
    uct_ep_h connect(Endpoint &endpoint, ucs_status_t &status) noexcept;
    /// Whether the peer is connected, too; asked until it is.
    static bool opened(Endpoint &endpoint) noexcept { return endpoint.open = endpoint.wire->open; }
    void took(Endpoint &endpoint) noexcept;
    void recover(Endpoint &endpoint) noexcept;
    void give_up(Endpoint &endpoint) noexcept;
    void bury(Endpoint &endpoint) noexcept;
    void drop_waiting(Endpoint &endpoint) noexcept;
    Posted post(Endpoint &endpoint, Fragment &fragment) noexcept;
    Posted judge(Endpoint &endpoint, ucs_status_t status) noexcept;
    void fail(Endpoint &endpoint, ucs_status_t status) noexcept;
    void complete(Fragment &fragment) noexcept;
    void push_waiting() noexcept;
    void look() noexcept;
    void note_leaving(std::span<const std::byte> payload) noexcept;
    void say_goodbye(Endpoint &endpoint) noexcept;
    void report() noexcept;

    const btl::Interface network_;
    const Settings &settings_;
    const std::uint64_t cookie_;
    const unsigned index_;
    mca::Mutex lock_; ///< guards all below, and everything of UCX's
    std::unique_ptr<Port> port_;
    std::unique_ptr<Wires> wires_; ///< where endpoints are connected one to one
    std::size_t largest_short_ = 0;
    std::unordered_map<Endpoint *, std::unique_ptr<Endpoint>> endpoints_;
    std::unordered_map<uct_ep_h, Endpoint *> by_way_;
    std::unordered_map<std::uint64_t, Endpoint *> by_cookie_;
    std::vector<Endpoint *> blocked_; ///< with fragments that wait
    std::vector<Endpoint *> lost_;    ///< whose connection is to be made anew
    std::vector<Endpoint *> failed_;  ///< to be told to the PML
    DoneList done_;                   ///< to be given back to the PML
    std::vector<uct_ep_h> graveyard_; ///< to be destroyed when UCX is not under way
    bool under_way_ = false;          ///< UCX may be in the middle of something
    bool delivers_ = false;           ///< it is: in its progress, which hands messages on
    base::Time next_check_;
    unsigned passes_ = 0;
    unsigned idle_ = 0; ///< passes since something was done
    btl::FragmentPools<Fragment> fragments_;
    ModuleCounters counters_;
    mca::Turn receiving_;
};

/// What a peer published.
struct Published {
    struct Place {
        std::string transport;
        Address at;
        std::string line; ///< transport of its line, empty when there is none
        Address line_at;
        btl::IpAddress address; ///< of its device, if it has one
        bool loopback = false;
        std::uint32_t largest = 0; ///< bytes of the longest active message
    };
    std::uint64_t cookie = 0;
    btl::NetworkStack stack;
    std::vector<Place> places;
};
inline constexpr std::size_t most_modules = 16;
inline constexpr std::size_t most_address_bytes = 255;

/// \return false when PMIx did not take it
bool publish_modules(const mca_btl_base_component_t &component, std::uint64_t cookie);
/// \return false when the peer does not use this BTL, or what it published makes no sense
bool published_by(const mca_btl_base_component_t &component, opal_proc_t *process, Published &out);

} // namespace ft::ucx
