/// \file
/// The parameters of a component, from a table to the fields of a struct.
#pragma once
#include "opal/mca/opal_prelude.hpp"

#include "opal/mca/misread.hpp"

#include <span>
#include <string>

namespace ft::btl {

/// One that is a number; ompi_info shows `help`, which says unit, default and range.
template <typename Settings>
struct NumberParameter {
    const char *name;
    std::uint32_t Settings::*member;
    std::uint32_t value; ///< the default, and what the user sets
    std::uint32_t least;
    std::uint32_t most;
    mca_base_var_info_lvl_t level;
    const char *help;
    bool or_zero = false; ///< 0 is allowed besides
};

/// Registers parameters of one component with Open MPI.
class Registrar {
  public:
    explicit Registrar(const mca_base_component_t &component) noexcept : component_(component) {}

    /// \param storage is where Open MPI leaves the user's value, at any time until it is closed
    void text(const char *name, const char *help, mca_base_var_info_lvl_t level, char **storage,
              const char *value) const noexcept
    {
        *storage = const_cast<char *>(value);
        add(name, help, MCA_BASE_VAR_TYPE_STRING, level, storage);
    }
    void flag(const char *name, const char *help, mca_base_var_info_lvl_t level,
              bool *storage) const noexcept
    {
        add(name, help, MCA_BASE_VAR_TYPE_BOOL, level, storage);
    }
    template <typename Settings>
    void numbers(std::span<NumberParameter<Settings>> all) const noexcept
    {
        for (NumberParameter<Settings> &number : all) {
            add(number.name, number.help, MCA_BASE_VAR_TYPE_UNSIGNED_INT, number.level,
                &number.value);
        }
    }

  private:
    void add(const char *name, const char *help, mca_base_var_type_t type,
             mca_base_var_info_lvl_t level, void *storage) const noexcept
    {
        mca_base_component_var_register(&component_, name, help, type, nullptr, 0,
                                        static_cast<mca_base_var_flag_t>(0), level,
                                        MCA_BASE_VAR_SCOPE_READONLY, storage);
    }
    const mca_base_component_t &component_;
};

/// What the user set goes to its fields. \param prefix what stands before each name, such as
/// "btl_dgram_" \param complain called with name, value and range of the first one that is out of
/// range, or no number \return false then
template <typename Settings, typename Complain>
bool take_numbers(const std::string &prefix, std::span<const NumberParameter<Settings>> all,
                  Settings &settings, Complain complain)
{
    for (const NumberParameter<Settings> &number : all) {
        const auto misread = mca::misread_number(prefix + number.name, true, false);
        if (misread || ((number.value < number.least || number.value > number.most) &&
                        !(number.or_zero && number.value == 0))) {
            complain(number.name, misread.value_or(std::to_string(number.value)),
                     (number.or_zero ? "0, or " : "") + std::to_string(number.least) + " to " +
                         std::to_string(number.most));
            return false;
        }
        settings.*number.member = number.value;
    }
    return true;
}

} // namespace ft::btl
