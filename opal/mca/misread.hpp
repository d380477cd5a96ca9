/// \file
/// Numbers from the command line that Open MPI reads without a word, whatever they say.
#pragma once
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

namespace ft::mca {

/// What the user wrote for a numeric parameter, where that is no number: Open MPI takes "many" for
/// 0, and "5ms" for 5 * 2^20, since a K, M or G behind a number multiplies it, whatever follows
/// (mca_base_var.c, int_from_string). Looks at what `mpirun --mca` and the environment gave;
/// parameter files are not looked at.
/// \param name the whole name, such as pml_dr_ack_every
/// \param sizes whether K, M or G may follow
/// \param sign whether it may have one: where the parameter cannot be negative Open MPI complains,
/// and goes on with the default
inline std::optional<std::string> misread_number(const std::string &name, bool sizes,
                                                 bool sign = true)
{
    const char *const text = std::getenv(("OMPI_MCA_" + name).c_str());
    if (text == nullptr || *text == '\0') {
        return std::nullopt;
    }
    if (!sign && std::strchr(text, '-') != nullptr) {
        return text; // strtoull takes it
    }
    char *end = nullptr;
    std::strtoull(text, &end, 0);
    if (sizes && end != text && *end != '\0' && std::strchr("KkMmGg", *end) != nullptr) {
        ++end;
    }
    return end != text && *end == '\0' ? std::nullopt : std::optional<std::string>(text);
}

} // namespace ft::mca
