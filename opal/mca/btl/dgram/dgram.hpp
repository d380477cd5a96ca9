/// \file
/// btl/dgram: fragments straight over unreliable datagrams. What it is for and how it is used is in
/// mca_btl_dgram.7.
///
/// One module for each address of this process that datagrams go out from; a peer that several of
/// them lead to has as many paths. A fragment is one datagram (or several parts, where the way has
/// become narrower than was announced) and is done when it was copied into the module's own memory.
/// Fragments are gathered and given to the network together: when a few dozen wait for a peer, when
/// the PML says that it has no more (btl_flush), and at the latest at the next progress.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "opal/ft/datagram/datagram.hpp"
#include "opal/ft/datagram/reassembly.hpp"
#include "opal/ft/datagram/size_search.hpp"
#include "opal/mca/btl/base/fragments.hpp"
#include "opal/mca/btl/base/network_stack.hpp"
#include "opal/mca/btl/dgram/transport.hpp"
#include "opal/mca/btl/dgram/trays.hpp"
#include "opal/mca/lock.hpp"

extern "C" {
/// What Open MPI looks for in the shared object.
extern mca_btl_base_component_t mca_btl_dgram_component;
}

namespace ft::dgram {

/// What the user set; filled when the component is opened.
struct Settings {
    std::string provider;
    std::string if_include;
    std::string if_exclude;
    std::uint32_t max_datagram = 0;
    std::uint32_t receive_buffer = 0;
    std::uint32_t send_buffer = 0;
    std::uint32_t batch = 0;
    std::uint32_t size_interval_ms = 0;
    std::uint32_t bandwidth = 0;
    std::uint32_t latency = 0;
    bool offload = true;
    bool stats = false;
};

class Module;

/// The way from a module to one peer.
struct Endpoint {
    Endpoint(std::uint32_t announced, base::Duration interval) : search(announced, interval) {}

    opal_proc_t *process = nullptr;
    Address address;
    std::uint64_t key = 0;            ///< the peer's cookie
    std::uint32_t sender = 0;         ///< how the peer signs
    std::unique_ptr<Channel> channel; ///< made at first contact
    bool broken = false;
    bool tried = false; ///< the channel was asked for
    bool used = false;  ///< it stands in Module::used_
    bool busy = false;  ///< something was sent since the idle ones were last looked for
    SizeSearch search;
    std::vector<Fragment *> waiting; ///< for the next flush
};

struct ModuleCounters {
    std::uint64_t fragments_sent = 0;
    std::uint64_t sent_in_parts = 0;
    std::uint64_t delivered = 0;
    std::uint64_t malformed = 0;
    std::uint64_t strangers = 0;
    std::uint64_t no_receiver = 0;
    std::uint64_t too_large = 0;
    std::uint64_t full = 0;
    std::uint64_t narrowed = 0; ///< by peers that have left
};

class Module final : public mca_btl_base_module_t, private Sink {
  public:
    using Endpoint = dgram::Endpoint;
    using Fragment = dgram::Fragment;

    Module(Interface network, std::unique_ptr<Transport> transport, const Settings &settings,
           std::uint64_t cookie, unsigned index);
    ~Module() override;

    [[nodiscard]] const Interface &network() const noexcept { return network_; }
    [[nodiscard]] Transport &transport() noexcept { return *transport_; }

    /// \return the way to that peer, nullptr when there is none
    Endpoint *reach(opal_proc_t *process);
    /// \return the new endpoint, owned by the module
    Endpoint *add_peer(opal_proc_t *process, const Address &address, std::uint64_t key,
                       std::uint32_t announced);
    void remove_peer(Endpoint *endpoint) noexcept;

    Fragment *allocate(std::size_t bytes, std::uint32_t flags) noexcept
    {
        Fragment *fragment = trays_.get(bytes, flags);
        return fragment != nullptr ? fragment : fragments_.get(bytes, flags);
    }
    void give_back(Fragment *fragment) noexcept
    {
        if (fragment->tray != Fragment::no_tray) {
            trays_.put(fragment);
        } else {
            fragments_.put(fragment);
        }
    }
    int send(Endpoint &endpoint, Fragment *fragment, mca_btl_base_tag_t tag) noexcept;
    int send_now(Endpoint &endpoint, opal_convertor_t *convertor, const void *header,
                 std::size_t header_bytes, std::size_t payload_bytes,
                 mca_btl_base_tag_t tag) noexcept;
    void flush(Endpoint &endpoint) noexcept;
    int progress() noexcept;
    /// Prints the counters if the user asked for them.
    void finish() const noexcept;

    mca_btl_base_module_error_cb_fn_t on_error = nullptr;

  private:
    friend class Sink; // take_each
    void take(std::span<const std::byte> datagram) noexcept override;
    [[nodiscard]] std::size_t
    length_of_first(std::span<const std::byte> stretch) const noexcept override
    {
        return dgram::length_of_first(stretch);
    }
    int take_stretch(std::span<const std::byte> stretch) noexcept override
    {
        return take_each(*this, stretch);
    }
    void take_unusual(std::span<const std::byte> datagram) noexcept;
    void take_trouble() noexcept;
    void deliver(mca_btl_base_tag_t tag, std::span<const std::byte> fragment) noexcept;
    void answer(const Header &probe, std::size_t bytes) noexcept;
    void take_answer(const Header &answer) noexcept;
    void flush_locked(Endpoint &endpoint) noexcept;
    SendResult send_in_parts(Endpoint &endpoint, Fragment &fragment) noexcept;
    SendResult send_run(Endpoint &endpoint, std::span<Fragment *const> run,
                        std::size_t &taken) noexcept;
    bool ready(Endpoint &endpoint) noexcept;
    /// The sizes that get through to it are looked for.
    void note_used(Endpoint &endpoint) noexcept
    {
        endpoint.busy = true;
        if (OPAL_UNLIKELY(!endpoint.used)) {
            endpoint.used = true;
            used_.push_back(&endpoint);
        }
    }
    void fail(Endpoint &endpoint, const std::string &why) noexcept;
    void report_failures() noexcept;
    /// Sees to what was sent, and to the sizes that get through.
    void look_after(base::Time now) noexcept;
    /// Open MPI does not say that a process has left before MPI_Finalize: a channel rests when it
    /// was not used for a while.
    void rest_idle() noexcept;
    void send_probe(Endpoint &endpoint, Kind kind, std::uint32_t nonce, std::uint32_t bytes,
                    std::uint32_t total) noexcept;
    [[nodiscard]] Header header_for(const Endpoint &endpoint, Kind kind) const noexcept;

    const Interface network_;
    const Settings &settings_;
    const std::uint64_t cookie_;
    const unsigned index_;
    mca::Mutex lock_; ///< guards all below but what the receiver alone uses
    std::unique_ptr<Transport> transport_;
    const std::size_t batch_; ///< fragments that are gathered
    std::unordered_map<Endpoint *, std::unique_ptr<Endpoint>> endpoints_;
    std::unordered_map<std::uint32_t, Endpoint *> by_sender_;
    std::vector<Endpoint *> unflushed_;
    std::vector<Endpoint *> used_;   ///< since the sizes were last looked at
    std::vector<Endpoint *> failed_; ///< to be told to the PML
    Trays trays_; ///< of those that fill a datagram, where many go out in one piece
    btl::FragmentPools<Fragment> fragments_;
    std::vector<std::byte> probe_;
    std::array<Outgoing, most_batch> outgoing_; ///< of one run, here so that none is cleared
    base::Time next_search_;
    base::Time next_rest_;
    bool told_shut_ = false; ///< that a way could not be opened
    ModuleCounters counters_;
    // The receiver's own.
    mca::Turn receiving_;
    Reassembly reassembly_;
    mca_btl_base_segment_t incoming_segment_{};
    mca_btl_base_descriptor_t incoming_{}; ///< its other fields are cleared once
    unsigned passes_ = 0;                  ///< since it was last looked after
};

/// What a peer published.
struct Published {
    std::uint64_t cookie = 0;
    btl::NetworkStack stack;
    struct Place {
        std::string provider;
        Address transport;
        btl::IpAddress address; ///< none: reached by other addresses than those of IP
        std::uint32_t largest = 0;
        bool loopback = false;
    };
    std::vector<Place> places;
};
/// \return false when PMIx did not take it
bool publish_modules(std::uint64_t cookie);
/// \return false when the peer does not use this BTL, or what it published makes no sense
bool published_by(opal_proc_t *process, Published &out);

inline constexpr std::size_t most_modules = 16;
inline constexpr const char *help_file = "help-btl-dgram.txt";

} // namespace ft::dgram
