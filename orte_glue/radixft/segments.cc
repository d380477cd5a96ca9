#include "orte_glue/radixft/segments.hpp"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace ft::radixft {

namespace {

/// The number in hexadecimal that `name` has between `start` and the next dot.
std::optional<std::uint32_t> job_in(std::string_view name, std::string_view start)
{
    if (!name.starts_with(start)) {
        return std::nullopt;
    }
    name.remove_prefix(start.size());
    std::uint32_t jobid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), jobid, 16);
    if (error != std::errc() || end == name.data() + name.size() || *end != '.') {
        return std::nullopt;
    }
    return jobid;
}

std::string hexadecimal(std::uint32_t number)
{
    char text[8];
    const auto end = std::to_chars(text, text + sizeof text, number, 16).ptr;
    return {text, end};
}

} // namespace

bool Segments::remove(std::uint32_t jobid, std::uint32_t local_rank) const noexcept
{
    try {
        // btl_vader_component.c
        const std::string path = folder + "/vader_segment." + node + "." + std::to_string(uid) +
                                 "." + hexadecimal(jobid) + "." + std::to_string(local_rank);
        return ::unlink(path.c_str()) == 0;
    } catch (const std::exception &) {
        return false;
    }
}

std::size_t Segments::remove_all(std::uint32_t family) const noexcept
{
    std::size_t removed = 0;
    try {
        const std::string starts[] = {"vader_segment." + node + "." + std::to_string(uid) + ".",
                                      "osc_sm." + node + "."};
        std::vector<std::filesystem::path> found;
        std::error_code error;
        for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
            const std::string name = entry.path().filename();
            for (const std::string &start : starts) {
                if (const auto jobid = job_in(name, start); jobid && *jobid >> 16 == family) {
                    found.push_back(entry.path());
                }
            }
        }
        for (const auto &path : found) {
            removed += ::unlink(path.c_str()) == 0 ? 1 : 0;
        }
    } catch (const std::exception &) {
        // Out of memory: left, as they would have been without radixft.
    }
    return removed;
}

} // namespace ft::radixft
