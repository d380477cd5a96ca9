#include "ompi/mca/pml/dr/peer_limits.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "opal/ft/base/wire.hpp"

extern "C" OMPI_DECLSPEC mca_pml_base_component_2_0_0_t mca_pml_dr_component;

namespace ft::dr {

namespace {

constexpr std::uint32_t magic = 0x316d6c64; // "dlm1"
constexpr std::size_t most_bytes = 1024;

const char *name_of(const mca_btl_base_selected_module_t &selected)
{
    return selected.btl_component->btl_version.mca_component_name;
}

} // namespace

void publish_limits() noexcept
{
    std::array<std::byte, most_bytes> blob{};
    base::WireWriter writer(blob);
    writer.u32(magic);
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const std::string_view name(name_of(*selected));
        writer.u8(static_cast<std::uint8_t>(name.size()));
        writer.bytes(std::as_bytes(std::span(name)));
        writer.u64(selected->btl_module->btl_max_send_size);
    }
    int rc = writer.ok() ? OPAL_SUCCESS : OPAL_ERR_VALUE_OUT_OF_BOUNDS;
    if (rc == OPAL_SUCCESS) {
        OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &mca_pml_dr_component.pmlm_version, blob.data(),
                        static_cast<int>(writer.position()));
    }
    if (rc != OPAL_SUCCESS) {
        opal_output(
            0,
            "pml/dr: what the BTLs can carry is not published, so peers send smaller fragments: "
            "%s",
            opal_strerror(rc));
    }
}

PeerLimits::PeerLimits(const opal_process_name_t &peer)
{
    void *blob = nullptr;
    std::size_t bytes = 0;
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_RECV(rc, &mca_pml_dr_component.pmlm_version, &peer, &blob, &bytes);
    if (rc != OPAL_SUCCESS || blob == nullptr) {
        return;
    }
    base::WireReader reader({static_cast<const std::byte *>(blob), bytes});
    if (reader.u32() != magic) {
        reader.fail();
    }
    while (reader.remaining() != 0) {
        const auto name = reader.bytes(reader.u8());
        const std::uint64_t limit = reader.u64();
        if (reader.ok()) {
            limits_.emplace_back(
                std::string(reinterpret_cast<const char *>(name.data()), name.size()), limit);
        }
    }
    if (!reader.ok()) {
        limits_.clear();
    }
    std::free(blob);
}

std::size_t PeerLimits::over(std::string_view btl) const noexcept
{
    std::size_t least = SIZE_MAX;
    for (const auto &[name, limit] : limits_) {
        if (name == btl) {
            least = std::min(least, limit);
        }
    }
    return least == SIZE_MAX ? unsaid : least;
}

} // namespace ft::dr
