/// Gives a fuzz target every file named on the command line, and every file in a folder named
/// there.
#include "test/fuzz/fuzz_require.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

bool replay(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    if (!file) {
        std::fprintf(stderr, "%s cannot be read\n", path.c_str());
        return false;
    }
    // A block of the exact size, so that a sanitizer sees what is read beyond it.
    const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
    return true;
}

} // namespace

int main(int count, char **arguments)
{
    int replayed = 0;
    for (int i = 1; i < count; ++i) {
        const std::filesystem::path path(arguments[i]);
        if (!std::filesystem::is_directory(path)) {
            if (!replay(path)) {
                return 1;
            }
            ++replayed;
            continue;
        }
        for (const auto &entry : std::filesystem::directory_iterator(path)) {
            if (!replay(entry.path())) {
                return 1;
            }
            ++replayed;
        }
    }
    std::printf("%d inputs\n", replayed);
    return replayed > 0 ? 0 : 1;
}
