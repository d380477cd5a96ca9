// Who of the processes of a job speaks for all of them: each of two children comes to it, one after
// the other.
#include "opal/mca/tell_once.hpp"
#include "test/unit/cmocka.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <sys/wait.h>

namespace {

namespace fs = std::filesystem;

/// mpirun's folder with one of a job.
struct Place {
    fs::path mpirun;
    std::string job;

    Place()
    {
        std::string name = fs::temp_directory_path() / "tell_once.XXXXXX";
        mpirun = mkdtemp(name.data());
        job = mpirun / "1";
        fs::create_directory(job);
    }
    ~Place() { fs::remove_all(mpirun); }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;

    /// Whether a process of this local rank tells it, which has this folder.
    static bool tells(const char *folder, unsigned local_rank, const char *what = "news")
    {
        const pid_t child = fork();
        if (child == 0) {
            std::string copy = folder == nullptr ? "" : folder;
            opal_process_info.job_session_dir = folder == nullptr ? nullptr : copy.data();
            opal_process_info.my_local_rank = local_rank;
            int told = 0;
            ft::mca::tell_once(what, [&] { ++told; });
            _exit(told);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status) != 0;
    }
};

void the_first_one_tells_it(void **)
{
    const Place place;
    assert_true(Place::tells(place.job.c_str(), 1));
    assert_false(Place::tells(place.job.c_str(), 0));
    assert_true(Place::tells(place.job.c_str(), 0, "other news"));
}

/// The first process fails, and Open MPI removes the job's folder with it. One that comes late
/// finds none, or has made it anew.
void who_comes_late_is_silent(void **)
{
    const Place place;
    assert_true(Place::tells(place.job.c_str(), 1));
    fs::remove_all(place.job);
    assert_false(Place::tells(place.job.c_str(), 0));
    fs::create_directory(place.job);
    assert_false(Place::tells(place.job.c_str(), 0));
}

void each_job_tells_it(void **)
{
    const Place place;
    const std::string second = place.mpirun / "2";
    fs::create_directory(second);
    assert_true(Place::tells(place.job.c_str(), 0));
    assert_true(Place::tells(second.c_str(), 0));
}

void without_a_folder_the_lowest_rank_tells_it(void **)
{
    assert_true(Place::tells(nullptr, 0));
    assert_false(Place::tells(nullptr, 1));
    assert_true(Place::tells("/tmp/tell_once.absent/1", 0));
    assert_false(Place::tells("/tmp/tell_once.absent/1", 1));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_first_one_tells_it),
        cmocka_unit_test(who_comes_late_is_silent),
        cmocka_unit_test(each_job_tells_it),
        cmocka_unit_test(without_a_folder_the_lowest_rank_tells_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
