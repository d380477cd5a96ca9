#include "opal/mca/btl/fault/fault.hpp"

#include "opal/mca/btl/base/component.hpp"
#include "opal/mca/open_mpi_series.hpp"
#include "opal/mca/show_help.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace ft::fault {

namespace {

constexpr const char *help_file = "help-btl-fault.txt";
constexpr auto no_flags = static_cast<mca_base_var_flag_t>(0);

/// A parameter's text as Open MPI's variable system keeps it, and what the user is told of it.
struct TextParameter {
    const char *name;
    std::string Parameters::*member;
    mca_base_var_info_lvl_t level;
    const char *help;
    char *storage;
};

std::array<TextParameter, 16> texts{{
    {"drop", &Parameters::drop, OPAL_INFO_LVL_3,
     "Fragments that are lost, percent, 0 to 100, default 0. 0: none. 100: nothing arrives; a PML "
     "without retransmission hangs at the first one",
     nullptr},
    {"duplicate", &Parameters::duplicate, OPAL_INFO_LVL_3,
     "Fragments that arrive twice, percent, 0 to 100, default 0. 0: none. 100: double traffic; a "
     "PML without duplicate suppression computes with garbage",
     nullptr},
    {"corrupt", &Parameters::corrupt, OPAL_INFO_LVL_3,
     "Fragments with flipped bits anywhere in header or payload, percent, 0 to 100, default 0. 0: "
     "none. 100: no fragment is whole; a PML without checksums delivers them or crashes",
     nullptr},
    {"reorder", &Parameters::reorder, OPAL_INFO_LVL_3,
     "Fragments that 1 to 8 later ones overtake, percent, 0 to 100, default 0. One that is not "
     "overtaken goes after 1 ms. 0: none. 100: every fragment is copied and waits up to 1 ms",
     nullptr},
    {"delay_us", &Parameters::delay_us, OPAL_INFO_LVL_3,
     "Time by which fragments are late, microseconds, 0 to 60000000, default 0 (no delay). Low: "
     "no more than the machine's own jitter. High: memory for the copies that wait, and timeouts "
     "of the PML",
     nullptr},
    {"delay_percent", &Parameters::delay_percent, OPAL_INFO_LVL_4,
     "Fragments that are late by btl_fault_delay_us, percent, 0 to 100, default 100. 0: none. 100: "
     "a slow path that keeps the order; in between, late ones are overtaken",
     nullptr},
    {"kill_after", &Parameters::kill_after, OPAL_INFO_LVL_3,
     "Fragments in one direction after which a path goes dead without a word, 0 to 10^12, default "
     "0 (never). 1: dead after the first. High: the job may end before",
     nullptr},
    {"kill_error", &Parameters::kill_error, OPAL_INFO_LVL_3,
     "The same, with the error reported as a BTL does: a failed completion, then refused sends, "
     "and the error callback of a BTL that has one. 0 to 10^12, default 0 (never)",
     nullptr},
    {"kill_btl", &Parameters::kill_btl, OPAL_INFO_LVL_4,
     "Which module dies when there are several: the BTL's name and the number of its module from "
     "0, like tcp:1; or any, whichever first carries that many fragments. Default: the first "
     "module "
     "of the first BTL that is subject to faults",
     nullptr},
    {"revive_after_ms", &Parameters::revive_after_ms, OPAL_INFO_LVL_4,
     "Time after which a dead path works again and the count of fragments begins anew, "
     "milliseconds, 0 to 3600000, default 0 (dead for good). Low: a path that flaps. High: as dead",
     nullptr},
    {"only", &Parameters::only, OPAL_INFO_LVL_3,
     "Names of the BTLs that are subject to faults, separated by commas. Default: all but self. "
     "Few: other paths stay healthy. All, self too: messages of a process to itself suffer",
     nullptr},
    {"what", &Parameters::what, OPAL_INFO_LVL_4,
     "Which fragments suffer: data, acks or all, default all. acks are the acknowledgements of "
     "pml/dr; under another PML everything is data. Probes of pml/dr suffer under all only",
     nullptr},
    {"direction", &Parameters::direction, OPAL_INFO_LVL_4,
     "Where fragments suffer: send, receive or both, default both. With both, a fragment between "
     "two processes that inject is at risk twice",
     nullptr},
    {"seed", &Parameters::seed, OPAL_INFO_LVL_4,
     "Seed of all decisions, 0 to 2^64-1, default 1. The same seed decides the same for the same "
     "fragment number of the same path, rank and direction",
     nullptr},
    {"ranks", &Parameters::ranks, OPAL_INFO_LVL_4,
     "Ranks that inject faults, like 0,2-3, default all. Few: the others stay healthy. All: every "
     "process copies and keeps back fragments",
     nullptr},
    {"count_interval_ms", &Parameters::count_interval_ms, OPAL_INFO_LVL_4,
     "Time after which btl_fault_count's line, with the words so far, is printed again and again, "
     "milliseconds, 0 to 3600000, default 0 (at the end only). Low: output that slows the job. "
     "High: old news",
     nullptr},
}};

bool count_parameter = false;

int register_parameters() noexcept
{
    if (!mca::open_mpi_fits(opal_btl_base_framework, "fault")) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    for (TextParameter &text : texts) {
        text.storage = nullptr;
        mca_base_component_var_register(&mca_btl_fault_component.btl_version, text.name, text.help,
                                        MCA_BASE_VAR_TYPE_STRING, nullptr, 0, no_flags, text.level,
                                        MCA_BASE_VAR_SCOPE_READONLY, &text.storage);
    }
    mca_base_component_var_register(
        &mca_btl_fault_component.btl_version, "count",
        "Print at the end, on standard error, one line for each rank that injects: how many "
        "fragments were subject to faults and how many suffered which. Default false",
        MCA_BASE_VAR_TYPE_BOOL, nullptr, 0, no_flags, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_READONLY,
        &count_parameter);
    return OPAL_SUCCESS;
}

/// The names in the parameter btl, in its order; empty when it is not given or only excludes.
std::vector<std::string> names_in_btl_parameter()
{
    std::vector<std::string> names;
    const char *selection = opal_btl_base_framework.framework_selection;
    if (selection == nullptr || selection[0] == '^') {
        return names;
    }
    char **list = opal_argv_split(selection, ',');
    for (char **name = list; name != nullptr && *name != nullptr; ++name) {
        names.emplace_back(*name);
    }
    opal_argv_free(list);
    return names;
}

bool contains(const std::vector<std::string> &names, std::string_view name)
{
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// BTL components that are open in this process, all of them whose name the user may give.
std::vector<std::string> open_btls()
{
    std::vector<std::string> names;
    mca_base_component_list_item_t *item = nullptr;
    OPAL_LIST_FOREACH(item, &opal_btl_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        const char *name = item->cli_component->mca_component_name;
        if (std::string_view(name) != "fault") {
            names.emplace_back(name);
        }
    }
    return names;
}

std::string join(const std::vector<std::string> &names)
{
    std::string all;
    for (const std::string &name : names) {
        all += (all.empty() ? "" : " ") + name;
    }
    return all.empty() ? "none" : all;
}

/// Tells why, and ends the job: a component can only refuse to be used, and then the job would run
/// without the faults that its owner believes in.
template <typename... Arguments>
[[noreturn]] void end_job(const char *topic, Arguments... arguments)
{
    // All ranks have the same parameters and rank 0 speaks for them. What only another rank sees is
    // said by that one, if nobody has ended it meanwhile.
    if (OPAL_PROC_MY_NAME.vpid != 0) {
        timespec rest{5, 0};
        while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
        }
    }
    mca::show_help(help_file, topic, arguments...);
    if (opal_pmix.abort != nullptr) {
        opal_pmix.abort(1, "btl/fault cannot inject as asked", nullptr);
    }
    exit(1);
}

/// \return whether there is anything to do in this process
bool configure()
{
    Parameters parameters;
    for (const TextParameter &text : texts) {
        if (text.storage != nullptr) {
            parameters.*text.member = text.storage;
        }
    }
    parameters.count = count_parameter;
    Settings settings;
    Complaint complaint;
    if (!read_settings(parameters, settings, complaint)) {
        end_job("bad-parameter", complaint.parameter.c_str(), complaint.value.c_str(),
                complaint.wanted.c_str(), complaint.parameter.c_str());
    }
    std::vector<std::string> named = settings.only;
    if (!settings.kill_btl.empty() && !settings.kills_any()) {
        named.push_back(settings.kill_btl);
    }
    for (const std::string &name : named) {
        if (!contains(open_btls(), name)) {
            end_job("unknown-btl", contains(settings.only, name) ? "only" : "kill_btl",
                    name.c_str(), join(open_btls()).c_str());
        }
    }
    const std::uint32_t rank = OPAL_PROC_MY_NAME.vpid;
    if ((!settings.any_fault() && !settings.count) || !settings.has_rank(rank)) {
        return false;
    }
    the_injector = new Injector(settings, rank);
    return true;
}

Btl **init(int *count, bool, bool) noexcept
{
    *count = 0;
    if (!contains(names_in_btl_parameter(), "fault") || !configure()) {
        return nullptr;
    }
    auto **modules = static_cast<Btl **>(malloc(sizeof(Btl *)));
    if (modules == nullptr) {
        return nullptr;
    }
    modules[0] = module();
    *count = 1;
    return modules;
}

bool started = false;

/// A process that ends without MPI_Finalize prints what it counted all the same.
struct AtExit {
    AtExit() = default;
    AtExit(const AtExit &) = delete;
    AtExit &operator=(const AtExit &) = delete;
    ~AtExit()
    {
        if (the_injector != nullptr) {
            the_injector->print_counters();
        }
    }
};
const AtExit at_exit;

} // namespace

void start() noexcept
{
    if (started || the_injector == nullptr) {
        return;
    }
    started = true;
    const Settings &settings = the_injector->settings();
    const std::vector<std::string> order =
        settings.only.empty() ? names_in_btl_parameter() : settings.only;
    if (!the_injector->wrap(order)) {
        const std::string wanted =
            settings.kill_btl.empty()
                ? "the first"
                : settings.kill_btl + ":" + std::to_string(settings.kill_instance);
        end_job("no-such-path", wanted.c_str(), the_injector->path_names().c_str());
    }
    opal_progress_register(on_progress);
}

void stop() noexcept
{
    if (the_injector == nullptr) {
        return;
    }
    if (started) {
        opal_progress_unregister(on_progress);
        the_injector->restore();
        started = false;
    }
    the_injector->print_counters();
    delete the_injector;
    the_injector = nullptr;
}

} // namespace ft::fault

extern "C" {

mca_btl_base_component_t mca_btl_fault_component =
    ft::btl::component("fault", ft::fault::register_parameters, ft::fault::init, nullptr);

} // extern "C"
