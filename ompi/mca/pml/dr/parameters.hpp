/// \file
/// The component's parameters: one table declares each with its name, default, range and help text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ompi/mca/ompi_prelude.hpp"

#include "opal/ft/base/lasting.hpp"
#include "opal/ft/reliability/config.hpp"

namespace ft::dr {

/// Mechanisms that a test can switch off, beside those of the engine.
struct TestSwitches {
    bool checksum = false;  ///< broken payloads and headers are taken for whole
    bool copies = false;    ///< what is sent again is sent from the user's memory, too
    bool leftovers = false; ///< fragments of a broken connection go on with the next one
    bool turns = false;     ///< Open MPI's event loop goes on until nothing is left to do
};

/// Values after `load`; written once, before any traffic, and only read from then on.
struct Parameters {
    reliability::Config engine;
    std::uint64_t process_window = 0; ///< bytes of long messages under way to all peers
    std::uint32_t eager_limit = 0;    ///< payload bytes, 0: what the BTLs say
    std::uint64_t eager_window = 0;   ///< PeerState::eager_cost of what was not asked for
    base::Duration drain = base::Duration::zero();
    base::Duration reconnect = base::Duration::zero(); ///< zero: a broken connection stays broken
    base::Duration keepalive = base::Duration::zero(); ///< zero: none
    unsigned stats = 0;
    base::Duration stats_interval = base::Duration::zero(); ///< zero: at MPI_Finalize only
    unsigned verbose = 0;
    /// A fragment whose header has no checksum is dropped. What is sent has one then, and where a
    /// peer requires it (engine.checksum_header).
    bool requires_sealed = true;
    bool helper = false; ///< a thread makes progress while the program computes
    TestSwitches disable;

    /// Whether payloads over a BTL of this name are checksummed.
    bool checksum_payload(std::string_view btl_name) const;
    /// Whether what is sent over it is acknowledged.
    bool acknowledged(std::string_view btl_name) const;

    /// A BTL that a parameter names, whether or not there is one of that name.
    struct NamedBtl {
        const char *parameter; ///< without "pml_dr_"
        std::string btl;
    };
    std::vector<NamedBtl> named_btls() const;

    /// What requires_sealed is going to be, as soon as the parameters are registered.
    static bool requires_sealed_headers();

    /// Registers every parameter with Open MPI. \return an OMPI error code
    static int register_all(const mca_base_component_t &component) noexcept;
    /// Takes over what the user set. \return false after a message when something is out of range
    bool load() noexcept;

  private:
    /// What became of the table, a line for each.
    void print() const noexcept;
    bool parse_checksum();
    bool parse_protection();
    bool parse_disable();
    bool parse_progress();
    bool parse_congestion();
    std::string per_btl_;    ///< ",name:none,name:full," as given, after the global word
    std::string protection_; ///< ",name:none,name:ack+crc," as given
};

/// The one set of this process.
extern base::Lasting<Parameters> the_parameters;
inline Parameters &parameters() noexcept
{
    return the_parameters.object;
}

} // namespace ft::dr
