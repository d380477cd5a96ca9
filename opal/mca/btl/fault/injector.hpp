/// \file
/// The faults of this process: one Path for each BTL module that is wrapped, one Injector for all.
///
/// The entry points that replace a module's own (fault_module.cc) call the member functions of Path
/// with the same arguments. No lock is held while anything outside this component is called: a BTL
/// or PML may call back into us from there.
#pragma once

#include "opal/mca/opal_prelude.hpp"

#include "opal/mca/btl/fault/later.hpp"
#include "opal/mca/btl/fault/plan.hpp"
#include "opal/mca/btl/fault/settings.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ft::fault {

using Btl = mca_btl_base_module_t;
using Endpoint = mca_btl_base_endpoint_t;
using Descriptor = mca_btl_base_descriptor_t;
using Tag = mca_btl_base_tag_t;
using Registration = mca_btl_base_registration_handle_t;
using Bytes = std::shared_ptr<std::vector<std::byte>>;

/// What was done, for the line at the end. `fragments` are those that were subject to faults.
struct Counters {
    std::uint64_t fragments = 0;
    std::uint64_t dropped = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t corrupted = 0;
    std::uint64_t reordered = 0;
    std::uint64_t delayed = 0;
    std::uint64_t killed = 0; ///< lost to, or refused by, a dead path
};

/// The entries of a module that were replaced.
struct Originals {
    mca_btl_base_module_add_procs_fn_t add_procs;
    mca_btl_base_module_del_procs_fn_t del_procs;
    mca_btl_base_module_finalize_fn_t finalize;
    mca_btl_base_module_send_fn_t send;
    mca_btl_base_module_sendi_fn_t sendi;
    mca_btl_base_module_put_fn_t put;
    mca_btl_base_module_get_fn_t get;
    mca_btl_base_module_register_error_fn_t register_error;
};

/// The arguments of a put or get.
struct RdmaCall {
    Endpoint *endpoint;
    void *local_address;
    std::uint64_t remote_address;
    Registration *local_handle;
    Registration *remote_handle;
    std::size_t size;
    int flags;
    int order;
    mca_btl_base_rdma_completion_fn_t done;
    void *context;
    void *data;
};

class Injector;

/// One wrapped module.
class Path {
  public:
    /// \param name like "tcp:1"
    Path(Injector &injector, Btl *btl, std::string name, bool may_die);
    Path(const Path &) = delete;
    Path &operator=(const Path &) = delete;

    [[nodiscard]] Btl *btl() const { return btl_; }
    [[nodiscard]] const Originals &originals() const { return originals_; }

    int send(Endpoint *endpoint, Descriptor *descriptor, Tag tag);
    int sendi(Endpoint *endpoint, opal_convertor_t *convertor, void *header,
              std::size_t header_size, std::size_t payload_size, std::uint8_t order,
              std::uint32_t flags, Tag tag, Descriptor **descriptor);
    void receive(Tag tag, Descriptor *descriptor);
    int put(const RdmaCall &call);
    int get(const RdmaCall &call);

    void add_peer(Endpoint *endpoint, opal_proc_t *proc);
    void remove_peer(Endpoint *endpoint);
    void set_error_callback(mca_btl_base_module_error_cb_fn_t callback);

    /// Does what is due. \return how much
    int progress();
    /// Gives the module its own entries back and lets go of what is held.
    void restore();

  private:
    /// What is to happen to one fragment.
    struct Verdict {
        bool lost = false;         ///< the path is dead
        bool refused = false;      ///< it is, and has said so before
        int status = OPAL_SUCCESS; ///< what a lost fragment's completion says
        bool counted = false;
        std::uint64_t number = 0;
        Decision decision;
    };
    enum class Sent : std::uint8_t { yes, not_yet, never };

    Verdict judge(Direction direction, bool eligible, const void *endpoint);
    void take_back(const Verdict &verdict);
    [[nodiscard]] bool dead_now();
    void report_death();
    void count(std::uint64_t Counters::*which);

    void complete_later(Endpoint *endpoint, Descriptor *descriptor, int status);
    /// Sends a copy now, or when it can be, or when the decision says so.
    void send_copy(Endpoint *endpoint, Tag tag, std::uint32_t flags, const Bytes &bytes,
                   const Decision &decision);
    Sent transmit(Endpoint *endpoint, Tag tag, std::uint32_t flags,
                  const std::vector<std::byte> &bytes);
    void deliver(Tag tag, std::vector<std::byte> &bytes);
    /// Makes a corrupted copy; null when there is nothing in it that could be.
    Bytes damage(const Bytes &bytes, const Decision &decision);
    /// Puts off by the time or the overtaking that the decision says. \return false: not at all
    bool put_off(const Decision &decision, Later later);
    void complete_rdma_later(const RdmaCall &call, int status);
    int put_copy(const RdmaCall &call, const Decision &decision);

    Injector &injector_;
    Btl *btl_;
    std::string name_;
    Originals originals_;
    std::array<Plan, 2> plans_;
    std::array<std::uint64_t, 2> numbers_{};
    PathLife life_;
    std::uint64_t deaths_reported_ = 0;
    LaterQueue later_;
    std::atomic<std::size_t> waiting_{0}; ///< later_.size(), to be looked at without the lock
    mca_btl_base_module_error_cb_fn_t error_callback_ = nullptr;
    struct Peer {
        Endpoint *endpoint;
        opal_proc_t *proc;
    };
    std::vector<Peer> peers_;
    bool restored_ = false;

    friend class Injector;
};

class Injector {
  public:
    Injector(const Settings &settings, std::uint32_t rank) : settings_(settings), rank_(rank) {}

    /// Wraps the modules that the settings name. To be called before any of them has a peer.
    /// \return false when btl_fault_kill_btl names none of them
    [[nodiscard]] bool wrap(const std::vector<std::string> &order);
    /// Under the mutex: no other path dies any more.
    void spare_others(const Path *dead);
    /// The paths that were wrapped, like "tcp:0 tcp:1".
    [[nodiscard]] std::string path_names() const;
    /// The path of a module, or null.
    [[nodiscard]] Path *find(const Btl *btl) const noexcept;

    /// Puts itself before the receiver of that tag, which the PML has just registered.
    void hook_receiver(Tag tag);
    /// What the PML registered for the tag.
    [[nodiscard]] const mca_btl_active_message_callback_t &receiver(Tag tag) const
    {
        return receivers_[tag];
    }

    int progress();
    void restore();
    /// The line that btl_fault_count asks for; printed once.
    void print_counters() noexcept;
    /// The same, as it is by now, when btl_fault_count_interval_ms have gone by.
    void print_counters_so_far() noexcept;

    [[nodiscard]] const Settings &settings() const { return settings_; }
    [[nodiscard]] std::uint32_t rank() const { return rank_; }
    [[nodiscard]] bool is_subject(Tag tag, const void *first_byte) const;

    std::mutex &mutex() { return mutex_; }
    Counters &counters() { return counters_; } ///< under the mutex

  private:
    Settings settings_;
    std::uint32_t rank_;
    std::mutex mutex_;
    Counters counters_;
    std::vector<std::unique_ptr<Path>> paths_;
    std::array<mca_btl_active_message_callback_t, MCA_BTL_TAG_MAX> receivers_{};
    std::atomic_flag in_progress_ = ATOMIC_FLAG_INIT;
    const pid_t process_ = getpid(); ///< a child of it has these counters, too, and is no rank
    bool printed_ = false;
    base::Time next_print_{}; ///< by whom runs progress
    void print_line(const char *when) noexcept;
};

/// The one of this process, or null while the component is inert.
extern Injector *the_injector;

/// The present on the machine's monotonic clock.
base::Time now() noexcept;
/// All segments of a fragment in one piece.
Bytes gather(const Descriptor &descriptor);

/// The thunks that stand in the modules' tables (fault_module.cc).
void patch(Btl &btl, const Settings &settings) noexcept;
void on_receive(Btl *btl, Tag tag, Descriptor *descriptor, void *data) noexcept;
int on_progress() noexcept;

} // namespace ft::fault
