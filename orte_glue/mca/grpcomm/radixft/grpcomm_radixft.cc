// grpcomm/radixft: the runtime's collectives (fence, barrier) among daemons and ranks of which some
// are dead.
//
// The stock allgather counts contributions and cannot tell whose they were, so it waits for the
// dead for ever. Here ft::radixft::Gather knows who contributed and who is gone. Broadcasts are
// left to the stock component, which takes its recipients from routed/radixft.
#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/daemon.hpp"
#include "orte_glue/radixft/parameters.hpp"

extern "C" {
extern orte_grpcomm_base_component_t mca_grpcomm_radixft_component;
}

namespace {

int init() noexcept
{
    return ORTE_SUCCESS;
}

void finalize() noexcept {}

int allgather(orte_grpcomm_coll_t *coll, opal_buffer_t *data) noexcept
{
    return ft::radixft::Daemon::get().allgather(coll, data);
}

orte_grpcomm_base_module_t module = {
    .init = init,
    .finalize = finalize,
    .xcast = nullptr,
    .allgather = allgather,
};

int query(mca_base_module_t **mine, int *priority) noexcept
{
    return ft::radixft::offer_to_daemons(&module, mine, priority);
}

} // namespace

extern "C" {
orte_grpcomm_base_component_t mca_grpcomm_radixft_component = {
    .base_version =
        {
            ORTE_GRPCOMM_BASE_VERSION_3_0_0,
            .mca_component_name = "radixft",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_open_component = nullptr,
            .mca_close_component = nullptr,
            .mca_query_component = query,
            .mca_register_component_params = nullptr,
            .mca_component_flags = 0,
            .reserved = {},
        },
    .base_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE, .reserved = {}},
};
}
