#include "orte_glue/radixft/death_board.hpp"
#include "test/unit/cmocka.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ft::radixft;

namespace {

constexpr std::uint32_t family = 4711;
constexpr std::uint64_t number = 0xfedcba9876543210;

RankDeath death_of(std::uint32_t vpid)
{
    return {{family << 16 | 1, vpid}, 2, Cause::signal, 137, 7, 1'000'000 + vpid, 42};
}

std::string path_of(const DeathBoard &board)
{
    return board.place().substr(0, board.place().rfind(':'));
}

bool opens(const std::string &place, std::uint32_t for_family = family)
{
    DeathReader reader;
    return reader.open(place.c_str(), for_family);
}

/// A board of the right look that was not made by a daemon, with these seals; its place.
std::string forged(int seals, std::size_t size = sizeof(DeathBoardLayout))
{
    const int file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    static DeathBoardLayout layout;
    layout.head = {.magic = DeathBoardLayout::expected_magic,
                   .format = DeathBoardLayout::expected_format,
                   .family = family,
                   .number = number};
    const bool written = pwrite(file, &layout, sizeof layout, 0) == sizeof layout &&
                         ftruncate(file, static_cast<off_t>(size)) == 0 &&
                         (seals == 0 || fcntl(file, F_ADD_SEALS, seals) == 0);
    return written ? "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file) + ":" +
                         std::to_string(number)
                   : "";
}

void a_death_is_read_once_and_whole(void **)
{
    DeathBoard board;
    DeathReader reader;
    const bool made = board.make(family, number);
    const bool opened = reader.open(board.place().c_str(), family);
    const bool quiet = !reader.news();
    board.post(death_of(3));
    RankDeath hung = death_of(4);
    hung.cause = Cause::hung;
    board.post(hung);
    const bool news = reader.news();
    const auto first = reader.take();
    const bool quiet_again = !reader.news() && reader.take().empty();
    board.post(death_of(5));
    const auto second = reader.take();
    assert_true(made && opened && quiet && news && quiet_again);
    assert_int_equal(first.size(), 2);
    assert_int_equal(first[0].jobid, family << 16 | 1);
    assert_int_equal(first[0].vpid, 3);
    assert_int_equal(first[0].epoch, 7);
    assert_int_equal(first[0].noticed_us, 1'000'003);
    assert_int_equal(first[0].stabilized_us, 42);
    assert_int_equal(first[0].hung, 0);
    assert_int_equal(first[1].hung, 1);
    assert_int_equal(second.size(), 1);
    assert_int_equal(second[0].vpid, 5);
}

void who_opens_it_late_reads_all(void **)
{
    DeathBoard board;
    board.make(family, number);
    board.post(death_of(1));
    board.post(death_of(2));
    DeathReader reader;
    reader.open(board.place().c_str(), family);
    assert_int_equal(reader.take().size(), 2);
}

/// Another process sees it, and keeps what it has seen when the daemon is gone.
void another_process_reads_it(void **)
{
    int seen = -1;
    {
        DeathBoard board;
        board.make(family, number);
        int pipes[2] = {};
        if (pipe(pipes) == 0) {
            const pid_t child = fork();
            if (child == 0) {
                DeathReader reader;
                char go = 0;
                const bool fine = reader.open(board.place().c_str(), family) &&
                                  read(pipes[0], &go, 1) == 1 && reader.news();
                _exit(fine ? static_cast<int>(reader.take().size()) : 100);
            }
            board.post(death_of(1));
            board.post(death_of(2));
            board.post(death_of(3));
            if (write(pipes[1], "x", 1) == 1) {
                waitpid(child, &seen, 0);
            }
            close(pipes[0]);
            close(pipes[1]);
        }
    }
    assert_true(WIFEXITED(seen));
    assert_int_equal(WEXITSTATUS(seen), 3);
}

void a_full_board_takes_no_more(void **)
{
    DeathBoard board;
    DeathReader reader;
    board.make(family, number);
    reader.open(board.place().c_str(), family);
    std::size_t posted = 0;
    for (std::uint32_t i = 0; i < DeathBoardLayout::capacity + 10; ++i) {
        posted += board.post(death_of(i)) ? 1 : 0;
    }
    const auto all = reader.take();
    assert_int_equal(posted, DeathBoardLayout::capacity);
    assert_int_equal(all.size(), DeathBoardLayout::capacity);
    assert_int_equal(all.back().vpid, DeathBoardLayout::capacity - 1);
    assert_false(reader.news());
}

void nobody_else_can_write_to_it(void **)
{
    DeathBoard board;
    board.make(family, number);
    const int file = open(path_of(board).c_str(), O_RDWR | O_CLOEXEC);
    const bool opened = file >= 0;
    const bool wrote = pwrite(file, "x", 1, 0) == 1;
    const bool cut = ftruncate(file, 0) == 0;
    const bool grown = ftruncate(file, 1 << 20) == 0;
    void *const memory =
        mmap(nullptr, sizeof(DeathBoardLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const bool mapped = memory != MAP_FAILED;
    const bool sealed_more = fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) == 0;
    close(file);
    assert_true(opened);
    assert_false(wrote || cut || grown || mapped || sealed_more);
}

void what_is_no_board_of_this_job_is_not_read(void **)
{
    DeathBoard board;
    board.make(family, number);
    const std::string path = path_of(board);
    char name[] = "/tmp/ft-board-XXXXXX";
    const int plain = mkstemp(name);
    const std::string file = std::string(name) + ":" + std::to_string(number);
    const std::string gone = "/proc/" + std::to_string(getpid()) + "/fd/9999:1";
    const bool right = opens(board.place());
    const bool none = opens("") || opens("nowhere") || opens(path) || opens(path + ":");
    const bool other_number = opens(path + ":1") || opens(board.place() + "0") ||
                              opens(path + ":-1") || opens(board.place() + "x");
    const bool other_family = opens(board.place(), family + 1);
    const bool other_file = opens(file) || opens(gone) || opens("/dev/zero:0") || opens("/tmp:0");
    close(plain);
    unlink(name);
    DeathReader reader;
    const bool null = reader.open(nullptr, family);
    assert_true(right);
    assert_false(none || other_number || other_family || other_file || null);
    assert_false(reader.news());
    assert_true(reader.take().empty());
}

void a_board_that_others_could_change_is_not_read(void **)
{
    constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
    const bool whole = opens(forged(sealed));
    const bool open_to_all = opens(forged(0));
    const bool writable = opens(forged(F_SEAL_SHRINK | F_SEAL_GROW));
    const bool shrinkable = opens(forged(F_SEAL_GROW | F_SEAL_FUTURE_WRITE));
    const bool short_one = opens(forged(sealed, sizeof(DeathBoardLayout) / 2));
    const bool long_one = opens(forged(sealed, sizeof(DeathBoardLayout) + 1));
    assert_true(whole); // or the others would prove nothing
    assert_false(open_to_all || writable || shrinkable || short_one || long_one);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_read_once_and_whole),
        cmocka_unit_test(who_opens_it_late_reads_all),
        cmocka_unit_test(another_process_reads_it),
        cmocka_unit_test(a_full_board_takes_no_more),
        cmocka_unit_test(nobody_else_can_write_to_it),
        cmocka_unit_test(what_is_no_board_of_this_job_is_not_read),
        cmocka_unit_test(a_board_that_others_could_change_is_not_read),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
