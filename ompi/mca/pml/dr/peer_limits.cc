#include "ompi/mca/pml/dr/peer_limits.hpp"

#include "ompi/mca/pml/dr/parameters.hpp"

#include <array>
#include <cstdlib>
#include <memory>

extern "C" OMPI_DECLSPEC mca_pml_base_component_2_0_0_t mca_pml_dr_component;

namespace ft::dr {

namespace {

constexpr std::size_t most_bytes = 1024;

int publish(const BtlLimits &limits) noexcept
{
    std::array<std::byte, most_bytes> blob{};
    const std::size_t bytes = limits.write(blob);
    if (bytes == 0) {
        return OPAL_ERR_VALUE_OUT_OF_BOUNDS;
    }
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &mca_pml_dr_component.pmlm_version, blob.data(),
                    static_cast<int>(bytes));
    return rc;
}

int publish_all() noexcept
try {
    BtlLimits limits;
    mca_btl_base_selected_module_t *selected = nullptr;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        limits.add(selected->btl_component->btl_version.mca_component_name,
                   selected->btl_module->btl_max_send_size);
    }
    if (!parameters().requires_sealed_headers()) {
        limits.add_trust();
    }
    return publish(limits);
} catch (...) {
    return OPAL_ERR_OUT_OF_RESOURCE;
}

} // namespace

void publish_limits() noexcept
{
    if (const int rc = publish_all(); rc != OPAL_SUCCESS) {
        opal_output(
            0,
            "pml/dr: what the BTLs can carry is not published, so peers send smaller fragments: "
            "%s",
            opal_strerror(rc));
    }
}

BtlLimits limits_of(const opal_process_name_t &peer)
{
    void *blob = nullptr;
    std::size_t bytes = 0;
    int rc = OPAL_SUCCESS;
    OPAL_MODEX_RECV(rc, &mca_pml_dr_component.pmlm_version, &peer, &blob, &bytes);
    if (rc != OPAL_SUCCESS || blob == nullptr) {
        return {};
    }
    const std::unique_ptr<void, void (*)(void *)> owned(blob, std::free);
    return BtlLimits::read({static_cast<const std::byte *>(blob), bytes});
}

} // namespace ft::dr
