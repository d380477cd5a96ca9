#include "orte_glue/radixft/watch.hpp"
#include "test/unit/cmocka.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace ft::radixft;
using namespace ft::base;

namespace {

constexpr Rank rank{7, 3};

/// A folder for records, and a child process that stands for a rank.
class Scene {
  public:
    Scene()
    {
        char name[] = "/tmp/ft-watch-XXXXXX";
        folder_ = mkdtemp(name);
        child_ = fork();
        if (child_ == 0) {
            pause();
            _exit(0);
        }
    }
    ~Scene()
    {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
        std::filesystem::remove_all(folder_);
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    void stop() const
    {
        kill(child_, SIGSTOP);
        waitpid(child_, nullptr, WUNTRACED);
    }

    void write(SelfCheckRecord record)
    {
        record.pid = child_;
        record.number = record.number_again = ++number_;
        raw(record);
    }

    void raw(const SelfCheckRecord &record)
    {
        const std::string path = self_check_path(folder_, rank.jobid, rank.vpid);
        if (file_ == nullptr) {
            file_ = std::fopen(path.c_str(), "w");
        }
        std::rewind(file_);
        std::fwrite(&record, sizeof record, 1, file_);
        std::fflush(file_);
    }

    const std::string &folder() const { return folder_; }

  private:
    std::string folder_;
    pid_t child_ = -1;
    std::uint64_t number_ = 0;
    std::FILE *file_ = nullptr;
};

const ft::detector::SelfCheckConfig config{
    .period = 100_ms, .frozen_limit = 1_s, .silent_limit = 1_s};

Time now = Time::from_ns(1);

/// Looks ten times a second for `seconds`; reports like `record` all the while, if there is one.
std::vector<Watch::Accused> run(Watch &watch, Scene &scene, int seconds,
                                const SelfCheckRecord *record)
{
    std::vector<Watch::Accused> all;
    for (int i = 0; i < 10 * seconds; ++i) {
        if (record != nullptr) {
            scene.write(*record);
        }
        now += 100_ms;
        for (const auto &accused : watch.look(now, {rank})) {
            all.push_back(accused);
        }
    }
    return all;
}

void frozen_in_mpi_is_hung_once(void **)
{
    std::vector<Watch::Accused> accused;
    bool unlinked = false;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        const SelfCheckRecord record{.flags = SelfCheckRecord::in_mpi, .progress = 9};
        accused = run(watch, scene, 5, &record);
        unlinked = std::filesystem::is_empty(scene.folder());
    }
    assert_int_equal(accused.size(), 1);
    assert_true(accused[0].cause == Cause::hung);
    assert_true(accused[0].who == rank);
    assert_true(unlinked);
}

void outside_mpi_announced_or_left_is_let_be(void **)
{
    std::size_t accused = 0;
    for (const SelfCheckRecord &record :
         {SelfCheckRecord{.flags = 0, .progress = 8},
          SelfCheckRecord{.flags = SelfCheckRecord::in_mpi, .announced_ns = 60'000'000'000},
          SelfCheckRecord{.flags = SelfCheckRecord::in_mpi | SelfCheckRecord::left}}) {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        accused += run(watch, scene, 5, &record).size();
    }
    assert_int_equal(accused, 0);
}

void stopped_is_accused_unless_a_user_said_so(void **)
{
    std::size_t suspended = 0;
    std::size_t unwanted = 0;
    std::vector<Watch::Accused> accused;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        Watch without(scene.folder(), config, false);
        const SelfCheckRecord record{.progress = 8};
        run(watch, scene, 1, &record);
        scene.stop();
        watch.on_suspended(true);
        suspended = run(watch, scene, 5, nullptr).size();
        watch.on_suspended(false);
        accused = run(watch, scene, 5, nullptr);
        unwanted = run(without, scene, 5, nullptr).size();
    }
    assert_int_equal(suspended, 0);
    assert_int_equal(unwanted, 0);
    assert_int_equal(accused.size(), 1);
    assert_true(accused[0].cause == Cause::stopped);
}

/// In MPI_Finalize, after its last report: mpirun waits for it.
void who_stops_after_leave_is_accused(void **)
{
    std::size_t quiet = 0;
    std::vector<Watch::Accused> accused;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        scene.write({.flags = SelfCheckRecord::in_mpi | SelfCheckRecord::left, .progress = 8});
        quiet = run(watch, scene, 5, nullptr).size();
        scene.stop();
        now += 100_ms;
        quiet += watch.look(now, {rank}).size();
        accused = run(watch, scene, 5, nullptr);
    }
    assert_int_equal(quiet, 0);
    assert_int_equal(accused.size(), 1);
    assert_true(accused[0].cause == Cause::stopped);
}

void silence_alone_is_nothing(void **)
{
    std::size_t accused = 0;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        const SelfCheckRecord record{.flags = SelfCheckRecord::in_mpi, .progress = 8};
        run(watch, scene, 1, &record);
        accused = run(watch, scene, 20, nullptr).size();
    }
    assert_int_equal(accused, 0);
}

void half_written_and_foreign_records_count_for_nothing(void **)
{
    std::size_t accused = 0;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        scene.raw({.flags = SelfCheckRecord::in_mpi, .pid = 1, .number = 3, .number_again = 2});
        accused += run(watch, scene, 3, nullptr).size();
        scene.raw({.magic = 5, .flags = SelfCheckRecord::in_mpi, .pid = 1});
        accused += run(watch, scene, 3, nullptr).size();
    }
    assert_int_equal(accused, 0);
}

/// As of a process that is reaped between the opening of its file and the reading of it.
void a_file_that_cannot_be_read_says_nothing(void ** /*state*/)
{
    std::size_t said = 0;
    bool threw = false;
    try {
        said = contents("/proc/self/mem").size(); // nothing is mapped at 0: EIO
    } catch (...) {
        threw = true;
    }
    assert_false(threw);
    assert_int_equal(said, 0);
    assert_true(!contents("/proc/self/stat").empty());
}

std::size_t open_files()
{
    std::size_t count = 0;
    for ([[maybe_unused]] const auto &entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
        ++count;
    }
    return count;
}

void who_is_gone_is_let_go(void **)
{
    std::size_t before = 0;
    std::size_t with = 0;
    std::size_t after = 0;
    {
        Scene scene;
        Watch watch(scene.folder(), config, true);
        scene.write({});
        before = open_files();
        watch.look(Time::from_ns(1), {rank});
        with = open_files();
        watch.look(Time::from_ns(2), {});
        after = open_files();
    }
    assert_int_equal(with, before + 1);
    assert_int_equal(after, before);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(frozen_in_mpi_is_hung_once),
        cmocka_unit_test(outside_mpi_announced_or_left_is_let_be),
        cmocka_unit_test(stopped_is_accused_unless_a_user_said_so),
        cmocka_unit_test(who_stops_after_leave_is_accused),
        cmocka_unit_test(silence_alone_is_nothing),
        cmocka_unit_test(half_written_and_foreign_records_count_for_nothing),
        cmocka_unit_test(a_file_that_cannot_be_read_says_nothing),
        cmocka_unit_test(who_is_gone_is_let_go),
    };
    return cmocka_run_group_tests_name("watch", tests, nullptr, nullptr);
}
