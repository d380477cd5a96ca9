// Golden scripts of whole exchanges: testdata/*.script. With FT_GOLDEN_UPDATE=1 in the environment
// they are written anew; read the difference before you keep it.
#include "../cmocka.hpp"
#include "script.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace {

std::string read(const std::filesystem::path &path)
{
    std::ifstream in(path);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

/// The first line that differs, or -1.
int first_difference(const std::string &wanted, const std::string &got, std::string &words)
{
    std::stringstream a(wanted);
    std::stringstream b(got);
    std::string x;
    std::string y;
    for (int line = 1;; ++line) {
        const bool more_a = static_cast<bool>(std::getline(a, x));
        const bool more_b = static_cast<bool>(std::getline(b, y));
        if (!more_a && !more_b) {
            return -1;
        }
        if (more_a != more_b || x != y) {
            words = "wanted \"" + (more_a ? x : "nothing more") + "\", got \"" +
                    (more_b ? y : "nothing more") + "\"";
            return line;
        }
    }
}

void golden(void **state)
{
    static std::string words; // outlives a failing assertion's longjmp
    int line = -1;
    {
        const auto &path = *static_cast<const std::filesystem::path *>(*state);
        const std::string wanted = read(path);
        const std::string got = play(wanted);
        if (std::getenv("FT_GOLDEN_UPDATE") != nullptr) {
            std::ofstream(path) << got;
        } else {
            line = first_difference(wanted, got, words);
            words = path.string() + ":" + std::to_string(line) + ": " + words;
        }
    }
    if (line != -1) {
        fail_test("%s", words.c_str());
    }
}

} // namespace

int main()
{
    static std::vector<std::filesystem::path> scripts;
    for (const auto &entry :
         std::filesystem::directory_iterator(FT_TOP_SRCDIR "/test/unit/consensus/testdata")) {
        if (entry.path().extension() == ".script") {
            scripts.push_back(entry.path());
        }
    }
    std::sort(scripts.begin(), scripts.end());
    static std::vector<std::string> names;
    for (const auto &path : scripts) {
        names.push_back(path.stem().string());
    }
    std::vector<CMUnitTest> tests;
    for (std::size_t i = 0; i < scripts.size(); ++i) {
        tests.push_back({names[i].c_str(), golden, nullptr, nullptr, &scripts[i]});
    }
    return _cmocka_run_group_tests("scripts", tests.data(), tests.size(), nullptr, nullptr);
}
