#include "ompi/mca/coll/validate/coll_validate.hpp"

#include "opal/mca/open_mpi_series.hpp"
#include "opal/mca/show_help.hpp"

extern "C" OMPI_DECLSPEC mca_coll_base_component_2_0_0_t mca_coll_validate_component;

namespace ft::coll {

namespace {

char *semantics_word = nullptr;
char *algorithm_word = nullptr;
int fan_out = static_cast<int>(consensus::most_fan_out);
bool majority = false;
int priority = 100;

int text(const char *name, const char *help, mca_base_var_info_lvl_t level, const char *initial,
         char **storage) noexcept
{
    *storage = const_cast<char *>(initial);
    return mca_base_component_var_register(
        &mca_coll_validate_component.collm_version, name, help, MCA_BASE_VAR_TYPE_STRING, nullptr,
        0, MCA_BASE_VAR_FLAG_SETTABLE, level, MCA_BASE_VAR_SCOPE_READONLY, storage);
}

int register_parameters() noexcept
{
    if (!mca::open_mpi_fits(ompi_coll_base_framework, "validate")) {
        return OMPI_ERR_NOT_AVAILABLE;
    }
    mca::add_help_dir();
    text("semantics",
         "When MPI_Comm_validate_all returns: strict or loose. strict: nobody returns another set, "
         "not even a process that dies a moment later; costs two exchanges of log2(n) messages one "
         "behind the other. loose: one that dies after its return may have returned another set; "
         "costs one exchange. The info key mpi_ft_semantics sets it for one communicator.",
         OPAL_INFO_LVL_3, "strict", &semantics_word);
    text("algorithm",
         "How the processes agree while nobody fails: fast (everybody to everybody in log2(n) "
         "steps: least time where each process has a core, 2 n log2(n) messages), tree (up and "
         "down a tree, twice: 4 (n - 1) messages, or 2 fewer, which is what counts where "
         "processes share cores), paper (three broadcasts and two reductions over a tree, as "
         "published) or auto: "
         "tree when a node has more of the job's processes than cores, else fast. auto takes all "
         "nodes for equal; where they are not, say which, or each call costs what paper does.",
         OPAL_INFO_LVL_5, "auto", &algorithm_word);
    mca_base_component_var_register(
        &mca_coll_validate_component.collm_version, "fan_out",
        "With algorithm tree: how many processes are directly below each, 1 to 31. 1: a chain, in "
        "which each waits for all before it. 31: a flat tree, in which one takes the messages of "
        "up to 31 one after the other.",
        MCA_BASE_VAR_TYPE_INT, nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_7,
        MCA_BASE_VAR_SCOPE_READONLY, &fan_out);
    mca_base_component_var_register(
        &mca_coll_validate_component.collm_version, "majority",
        "A process ends itself when it has lost the way to half of the group or more, without the "
        "runtime's word that they are dead. true: the two halves of a parted network never both go "
        "on, but neither does a job that really lost so many. false: both may go on.",
        MCA_BASE_VAR_TYPE_BOOL, nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_4,
        MCA_BASE_VAR_SCOPE_READONLY, &majority);
    mca_base_component_var_register(
        &mca_coll_validate_component.collm_version, "priority",
        "Among the collective components, 0 to 100. Once somebody has failed it stands above "
        "those of lower priority; those of higher priority know nothing of failures and hang "
        "when a rank dies. -1 switches it off. MPI_T sets it, at all ranks alike, for "
        "communicators made from then on.",
        MCA_BASE_VAR_TYPE_INT, nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_6,
        MCA_BASE_VAR_SCOPE_ALL_EQ, &priority);
    return OMPI_SUCCESS;
}

bool is(const char *word, const char *wanted)
{
    return word != nullptr && std::strcmp(word, wanted) == 0;
}

int init_query(bool /*progress_threads*/, bool /*mpi_threads*/) noexcept
{
    validate::Options &options = validate::service().options;
    if (!is(semantics_word, "strict") && !is(semantics_word, "loose")) {
        mca::show_help("help-coll-validate.txt", "bad word", "semantics",
                       semantics_word == nullptr ? "" : semantics_word, "strict or loose");
        return OMPI_ERR_BAD_PARAM;
    }
    if (is(algorithm_word, "fast")) {
        options.algorithm = consensus::Algorithm::fast;
    } else if (is(algorithm_word, "tree")) {
        options.algorithm = consensus::Algorithm::tree;
    } else if (is(algorithm_word, "paper")) {
        options.algorithm = consensus::Algorithm::paper;
    } else if (!is(algorithm_word, "auto")) {
        mca::show_help("help-coll-validate.txt", "bad word", "algorithm",
                       algorithm_word == nullptr ? "" : algorithm_word,
                       "auto, fast, tree or paper");
        return OMPI_ERR_BAD_PARAM;
    }
    if (fan_out < 1 || fan_out > static_cast<int>(consensus::most_fan_out)) {
        const std::string said = std::to_string(fan_out);
        mca::show_help("help-coll-validate.txt", "bad word", "fan_out", said.c_str(), "1 to 31");
        return OMPI_ERR_BAD_PARAM;
    }
    options.fan_out = static_cast<std::uint32_t>(fan_out);
    options.semantics =
        is(semantics_word, "loose") ? validate::Semantics::loose : validate::Semantics::strict;
    options.majority = majority;
    return OMPI_SUCCESS;
}

/// Nobody else asks for it: a job over another PML whose program does not have the library.
bool wanted() noexcept
{
    const char *pml = mca_pml_base_selected_component.pmlm_version.mca_component_name;
    return std::strcmp(pml, "dr") == 0 || process::run_through();
}

mca_coll_base_module_t *query(ompi_communicator_t *comm, int *level) noexcept
{
    if (priority < 0 || !wanted()) {
        return nullptr;
    }
    if (comm != &ompi_mpi_comm_world.comm && !validate::service().is_open()) {
        return nullptr; // MPI_COMM_WORLD did not take it
    }
    *level = priority;
    return new_module();
}

} // namespace

} // namespace ft::coll

// The rest of the struct is Open MPI's reserve.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
mca_coll_base_component_2_0_0_t mca_coll_validate_component = {
    .collm_version =
        {
            MCA_COLL_BASE_VERSION_2_0_0,
            .mca_component_name = "validate",
            .mca_component_major_version = FT_VERSION_MAJOR,
            .mca_component_minor_version = FT_VERSION_MINOR,
            .mca_component_release_version = FT_VERSION_RELEASE,
            .mca_register_component_params = ft::coll::register_parameters,
        },
    .collm_data = {MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .collm_init_query = ft::coll::init_query,
    .collm_comm_query = ft::coll::query,
};
