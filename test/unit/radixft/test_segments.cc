#include "orte_glue/radixft/segments.hpp"
#include "test/unit/cmocka.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace ft::radixft;

namespace {

constexpr std::uint32_t family = 0x2ab3;
constexpr std::uint32_t job = family << 16 | 1;

/// A folder of files, which are gone with it.
class Folder {
  public:
    explicit Folder(std::initializer_list<const char *> names)
    {
        char name[] = "/tmp/segments-XXXXXX";
        path_ = mkdtemp(name);
        for (const char *file : names) {
            std::ofstream(path_ / file) << "x";
        }
    }
    ~Folder()
    {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    bool has(const char *name) const { return std::filesystem::exists(path_ / name); }
    Segments segments() const { return {path_, "n1", 1000}; }

  private:
    std::filesystem::path path_;
};

void one_rank(void **)
{
    bool removed = false;
    bool again = true;
    bool right = false;
    {
        const Folder folder({"vader_segment.n1.1000.2ab30001.3",
                             "vader_segment.n1.1000.2ab30001.33",
                             "vader_segment.n1.1000.2ab30002.3"});
        removed = folder.segments().remove(job, 3);
        again = folder.segments().remove(job, 3);
        right = !folder.has("vader_segment.n1.1000.2ab30001.3") &&
                folder.has("vader_segment.n1.1000.2ab30001.33") &&
                folder.has("vader_segment.n1.1000.2ab30002.3");
    }
    assert_true(removed && right);
    assert_false(again);
}

void nothing_of_others(void **)
{
    std::size_t removed = 0;
    bool right = false;
    {
        const Folder folder({"vader_segment.n1.1000.2ab30001.0", "vader_segment.n1.1000.2ab30005.1",
                             "osc_sm.n1.2ab30001.0.4", "vader_segment.n1.1000.2ab40001.0",
                             "vader_segment.n1.1001.2ab30001.0",
                             "vader_segment.n11.1000.2ab30001.0", "vader_segment.n1.1000.2ab30001",
                             "vader_segment.n1.1000.", "osc_sm.n1.xyz.0.4",
                             "ucx_shm_posix_2ab30001"});
        removed = folder.segments().remove_all(family);
        right = folder.has("vader_segment.n1.1000.2ab40001.0") &&
                folder.has("vader_segment.n1.1001.2ab30001.0") &&
                folder.has("vader_segment.n11.1000.2ab30001.0") &&
                folder.has("vader_segment.n1.1000.2ab30001") &&
                folder.has("vader_segment.n1.1000.") && folder.has("osc_sm.n1.xyz.0.4") &&
                folder.has("ucx_shm_posix_2ab30001");
    }
    assert_int_equal(removed, 3);
    assert_true(right);
}

void a_folder_that_is_not_there(void **)
{
    const Segments segments{"/nowhere/at/all", "n1", 0};
    assert_false(segments.remove(job, 0));
    assert_int_equal(segments.remove_all(family), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(nothing_of_others),
        cmocka_unit_test(a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
