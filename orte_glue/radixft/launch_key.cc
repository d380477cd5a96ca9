#include "orte_glue/orte_prelude.hpp"

#include "orte_glue/radixft/launch_key.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace ft::radixft {

using membership::Key;

namespace {

// As a setting of the runtime's, though it is none: those are what launchers pass on.
constexpr char variable[] = "OMPI_MCA_errmgr_radixft_launch_key";

std::string hex(const Key &key)
{
    std::string text;
    for (const std::byte b : key) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
        text += digits;
    }
    return text;
}

/// Where the kernel reads this process's command line from, for whoever asks for it.
std::span<char> command_line()
{
    std::ifstream stat("/proc/self/stat");
    std::string text;
    std::getline(stat, text);
    // The name of the program, in brackets, may hold anything. Behind it: field 3 and so on.
    std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
    std::string field;
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    for (int n = 3; n <= 49 && fields >> field; ++n) {
        if (n >= 48) {
            (n == 48 ? begin : end) = std::strtoull(field.c_str(), nullptr, 10);
        }
    }
    return begin == 0 || end <= begin
               ? std::span<char>()
               : std::span<char>(reinterpret_cast<char *>(begin), end - begin);
}

} // namespace

std::optional<Key> draw_key() noexcept
{
    Key key;
    if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
        return std::nullopt;
    }
    return key;
}

void hand_out(const Key &key) noexcept
{
    setenv(variable, hex(key).c_str(), 1);
}

void hand_out_no_more() noexcept
{
    unsetenv(variable);
}

WithEnvironment::WithEnvironment(const Key &key) noexcept
{
    opal_setenv(variable, hex(key).c_str(), true, &orte_launch_environ);
}

WithEnvironment::~WithEnvironment()
{
    opal_unsetenv(variable, &orte_launch_environ);
}

std::optional<Key> handed_out() noexcept
{
    const char *const value = std::getenv(variable);
    Key key;
    const std::string text = value == nullptr ? "" : value;
    if (text.size() != 2 * key.size()) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < key.size(); ++i) {
        unsigned byte = 0;
        if (std::sscanf(text.c_str() + 2 * i, "%2x", &byte) != 1) {
            return std::nullopt;
        }
        key[i] = static_cast<std::byte>(byte);
    }
    // Ranks get what the runtime has put aside for them. The environment itself keeps it for
    // daemons that this one may have to start.
    opal_unsetenv(variable, &orte_launch_environ);
    const std::span<char> line = command_line();
    for (auto at = line.begin();
         (at = std::search(at, line.end(), text.begin(), text.end())) != line.end();) {
        std::fill_n(at, text.size(), 'x');
    }
    return key;
}

Key job_key(const Key &launch_key, const Key &number)
{
    Key result;
    for (std::size_t half = 0; half < 2; ++half) {
        std::array<std::byte, std::tuple_size_v<Key> + 1> text{};
        std::copy(number.begin(), number.end(), text.begin());
        text.back() = static_cast<std::byte>(half);
        const std::uint64_t word = membership::siphash24(launch_key, text);
        for (std::size_t i = 0; i < 8; ++i) {
            result[8 * half + i] = static_cast<std::byte>(word >> (8 * i));
        }
    }
    return result;
}

} // namespace ft::radixft
