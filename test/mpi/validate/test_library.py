#!/usr/bin/env python3
"""libmpi_ft as it is installed: flags, headers, Fortran module, manual pages, examples.

Programs are built as a user builds them, with pkg-config and Open MPI's compilers, and run with
ranks that die.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "lib"))

import ftmanual  # noqa: E402
import ftmpi  # noqa: E402
from fttap import check, main  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
CALLS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "calls")
HEARSAY = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "hearsay")
CONNECTS = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "connects")
TABLE = os.path.join(ftmpi.BUILD, "test", "mpi", "validate", "table")
HALF_ADDED = TABLE.replace("table", "half_added")
REVOKED = TABLE.replace("table", "revoked")
PREFIX = os.environ["FT_PREFIX"]
WORK = os.environ.get("TMPDIR", "/tmp")
DEADLINE = 60
DEADLY = {"pml": "dr", "btl": "vader,self", "errmgr": "radixft"}


def flags():
    """What pkg-config says of mpi_ft."""
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(os.environ["FT_LIB_DIR"], "pkgconfig"))
    done = subprocess.run(["pkg-config", "--cflags", "--libs", "mpi_ft"], env=env, check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def build(compiler, source, *before):
    """Compiles one of this folder's programs without a warning, with these flags before the library's; gives its path."""
    program = os.path.join(WORK, os.path.basename(source).replace(".", "_"))
    command = [compiler, "-Wall", "-o", program, os.path.join(HERE, source), *before, *flags()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    check(done.returncode == 0 and "warning" not in done.stdout, f"{command}:\n{done.stdout}")
    return program


def run(ranks, parameters, *program):
    """An mpirun that must not hang."""
    result = ftmpi.run([ftmpi.MPIRUN, "--oversubscribe", "-np", str(ranks), *ftmpi.mca(parameters),
                        *program], DEADLINE, show_stacks=True)
    result.must(not result.late, f"{program}: a hang")
    return result


def linked():
    """A program that calls nothing of the library is linked with it all the same, whatever the linker is told"""
    source = os.path.join(WORK, "only_constants.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <mpi_ft.h>\nint main(void) { return MPI_ERR_RANK_FAIL_STOP == 0; }\n")
    program = build(os.environ["FT_MPICC"], source, "-Wl,--as-needed")
    done = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, text=True, check=True)
    check(re.search(r"NEEDED.*\[libmpi_ft\.so", done.stdout), f"it is not: {done.stdout}")


def survivors(ranks, dead, *program, then=None, over=None):
    """All but the dead rank, and the one that dies then, must say that they are right."""
    result = run(ranks, {**DEADLY, **(over or {})}, *program)
    right = {int(rank) for rank in re.findall(r"^\s*rank (\d+) right$", result.output, re.M)}
    result.must(result.code == 0 and right == set(range(ranks)) - {dead, then}, f"right: {right}")


def header():
    """Name and prototype of each public function."""
    with open(os.path.join(ftmpi.TOP, "ompi/mpi_ft/mpi_ft.h"), encoding="utf-8") as file:
        found = re.findall(r"^(int (MPIX?_\w+)\([^;]*\);)", file.read(), re.M)
    return {name: " ".join(text.split()) for text, name in found}


def pages():
    """Every public function has an installed manual page with its prototype"""
    names = header()
    check(len(names) >= 14, f"the header has only {sorted(names)}")
    folder = os.path.join(PREFIX, "share", "man")
    for name, prototype in names.items():
        with open(os.path.join(folder, "man3", f"{name}.3"), encoding="utf-8") as file:
            text = file.read()
        other = re.match(r"\.so (\S+)", text)
        if other:
            with open(os.path.join(folder, other.group(1)), encoding="utf-8") as file:
                text = file.read()
        check(f'"{prototype}"' in text, f"{name}.3 does not have '{prototype}'")


def component_page():
    """The page of coll/validate describes every parameter with its default, and no other"""
    ftmanual.agree("coll", "validate", "ompi/mca/coll/validate")


def ulfm_in_c():
    """A C program written for ULFM compiles unchanged and outlives a rank"""
    survivors(4, 2, build(os.environ["FT_MPICC"], "ulfm_program.c"))


def ulfm_in_cxx():
    """The same as C++"""
    program = os.path.join(WORK, "ulfm_program.cpp")
    with open(os.path.join(HERE, "ulfm_program.c"), encoding="utf-8") as source, \
            open(program, "w", encoding="utf-8") as copy:
        copy.write(source.read())
    survivors(4, 2, build(os.environ["FT_MPICXX"], program))


def fortran():
    """Fortran programs, with use mpi and with use mpi_f08"""
    for source in ("fortran_mpi.f90", "fortran_f08.f90"):
        survivors(4, 2, build("mpifort", source))


def failures():
    """Calls with a failure: groups of failed ranks, local recognition, create, split and free"""
    survivors(4, 1, CALLS, "failures")
    survivors(6, 1, CALLS, "failures")


def own_types():
    """Non-blocking collectives with datatypes and an operation of the program's own"""
    survivors(4, 1, CALLS, "own_types")


def untouched():
    """Collectives are Open MPI's own until somebody has failed, and those under way then end with the right class"""
    survivors(4, 1, TABLE, "met")
    survivors(6, 1, TABLE, "met")


def waited():
    """A collective that a failure has ended has one class, in the status and to the error handler, revoked or not"""
    survivors(4, 1, TABLE, "waited")
    survivors(6, 1, TABLE, "waited")


def begun():
    """The same when the failure is known before a round of the collective begins that is with the dead rank"""
    survivors(4, 2, TABLE, "begun")
    # What Open MPI has for a request is used again.
    survivors(4, 2, TABLE, "begun_again", then=3)


def connects(how, where):
    """One job in which rank 0 waits for its connection to rank 1, which is outside of MPI, and rank 2 does this."""
    fifo = os.path.join(WORK, f"connects_{how}_{where}")
    os.mkfifo(fifo)
    over = dict(DEADLY, btl="tcp,self", btl_tcp_if_include="lo")
    result = run(3, over, CONNECTS, how, where, fifo)
    right = {int(rank) for rank in re.findall(r"^\s*rank (\d+) right$", result.output, re.M)}
    result.must(result.code == 0 and right == {0, 1, 2} - ({2} if how == "dies" else set()), f"right: {right}")


def unconnected_dies():
    """Who waits in a collective for a connection to a rank that lives comes out when another one dies"""
    connects("dies", "barrier")
    connects("dies", "gather")


def unconnected_revoked():
    """The same, and in a send of the program's own, when the communicator is revoked"""
    connects("revokes", "barrier")
    connects("revokes", "gather")
    connects("revokes", "send")


def half_enabled():
    """When coll/validate cannot begin, it leaves the tables as they were"""
    # coll/sync is one that coll/validate stands above from the beginning.
    result = run(4, dict(DEADLY, coll_sync_barrier_before="1000"), TABLE, "half_enabled")
    result.must(result.code == 0 and result.output.count(" right") == 4, "somebody was wrong")


def revoker():
    """A rank dies that has told one other only that it revokes: all hear of it"""
    survivors(4, 1, CALLS, "revoker")


def revoked_matched():
    """A long message matched before its communicator is revoked, and received after it, is an error to both"""
    for btl in ("vader,self", "tcp,self"):
        result = run(2, {"pml": "dr", "btl": btl}, REVOKED, "matched")
        result.must(result.code == 0 and result.output.count(" right") == 2, "somebody was wrong")


def revoked_together():
    """Of what a revocation ends under another thread nothing is called pending and gone"""
    for btl in ("vader,self", "tcp,self"):
        result = run(2, {"pml": "dr", "btl": btl}, TABLE.replace("table", "pending"))
        result.must(result.code == 0 and result.output.count(" right") == 2, "somebody was wrong")


def revoked_itself():
    """Sends to the own rank that wait for their receives end when their communicator is revoked"""
    result = run(2, {"pml": "dr", "btl": "vader,self"}, REVOKED, "itself")
    result.must(result.code == 0 and result.output.count(" right") == 2, "somebody was wrong")


def revoked_buffered():
    """A persistent buffered send tells what others tell of a dead, a recognised and a revoking rank"""
    survivors(4, 1, REVOKED, "buffered")


def revoked_survivors():
    """A collective among the survivors ends when the communicator is revoked"""
    survivors(3, 2, REVOKED, "survivors")


def revoked_any_source():
    """A receive from any source that has its message gets its bytes although another rank fails"""
    survivors(3, 1, REVOKED, "any_source")


def ignored():
    """What a recognised rank has sent, or sends yet, reaches no receive from any source; an acknowledged one's does"""
    for btl in ("vader,self", "tcp,self"):
        # What comes in vain is several times that window.
        survivors(3, 1, TABLE.replace("table", "ignored"), over={"btl": btl, "pml_dr_eager_window_bytes": "262144"})


def threads():
    """Two threads validate a communicator each while a rank dies"""
    survivors(4, 1, CALLS, "threads")


def unsupported():
    """MPI_COMM_NULL, null pointers and ranks that are none are errors"""
    result = run(4, {"pml": "dr", "btl": "vader,self"}, CALLS, "unsupported")
    result.must(result.code == 0 and result.output.count("right") == 4, "somebody was wrong")


def early():
    """A call before MPI_Init ends the program with a message"""
    result = run(1, {"pml": "dr", "btl": "vader,self"}, CALLS, "early")
    result.must(result.code != 0, "it went on")
    result.must("MPI_Comm_validate_all" in result.output and "MPI_INIT" in result.output.upper(),
                "no message")


ANOTHER = """
#include <string.h>
int PMPI_Init(int *argc, char ***argv) { (void)argc; (void)argv; return 0; }
int PMPI_Get_library_version(char *version, int *length)
{
    strcpy(version, "Another MPI 1.2\\nof the test");
    *length = (int)strlen(version);
    return 0;
}
"""
STRANGER = """
#ifdef WITH_HEADER
#include <mpi_ft.h>
#endif
#include <stdio.h>
int PMPI_Init(int *argc, char ***argv);
int MPI_Comm_validate_all(int comm, int *count);
int main(void)
{
    int count = 0;
    PMPI_Init(0, 0);
    MPI_Comm_validate_all(0x44000000, &count);
    puts("goes on");
    return 0;
}
"""


def another_mpi():
    """A program of another MPI, which links with the library, ends with a message that says so"""
    def written(name, text):
        path = os.path.join(WORK, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def run_here(*command):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=DEADLINE)

    other = os.path.join(WORK, "libanother.so")
    program = os.path.join(WORK, "stranger")
    source = written("stranger.c", STRANGER)
    done = run_here("cc", "-shared", "-fPIC", "-o", other, written("another.c", ANOTHER))
    check(done.returncode == 0, done.stdout)
    done = run_here("cc", "-o", program, source, other, "-Wl,-rpath," + WORK,
                    *[flag for flag in flags() if flag.startswith(("-L", "-l", "-Wl"))])
    check(done.returncode == 0, done.stdout)
    done = run_here(program)
    check(done.returncode != 0 and "goes on" not in done.stdout, f"it went on: {done.stdout}")
    for words in ("MPI_Comm_validate_all", "another MPI: Another MPI 1.2\n", "mpicc"):
        check(words in done.stdout, f"no '{words}' in: {done.stdout}")
    folder = os.path.join(WORK, "another")
    os.makedirs(folder, exist_ok=True)
    written("another/mpi.h", "typedef int MPI_Comm;\n#define MPICH_NAME 4\n")
    done = run_here("cc", "-DWITH_HEADER", "-fsyntax-only", "-I" + folder, "-I" + os.path.join(PREFIX, "include"), source)
    check(done.returncode != 0 and "is not Open MPI 4.1's" in done.stdout, f"the header: {done.stdout}")


def other_pml():
    """Over ob1 validation works, and a message says what does not"""
    result = run(3, {"pml": "ob1", "btl": "vader,self"}, CALLS, "calm")
    result.must(result.code == 0 and result.output.count("right") == 3, "somebody was wrong")
    result.must(result.output.count('runs over the PML "ob1"') == 1, "no message, or several")


def other_pml_deadly():
    """Over ob1, with a death: agreements and later collectives work, and a message says what does not"""
    for btl in ("vader,self", "tcp,self", "vader,tcp,self"):
        result = run(4, {"pml": "ob1", "btl": btl, "errmgr": "radixft"}, CALLS, "other_pml")
        result.must(result.code == 0 and result.output.count(" right") == 3, "somebody was wrong")
        result.must(result.output.count('runs over the PML "ob1"') == 1, "no message, or several")


VALIDATES = """
#include <mpi_ft.h>
int main(int argc, char **argv)
{
    int failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_validate_all(MPI_COMM_WORLD, &failed);
    return MPI_Finalize();
}
"""


LOADS = """
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank = 0, word = 0, code = 0, flag = 0;
    MPI_Request any;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) {
        MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        raise(SIGKILL);
    }
    if (rank == 2) { /* lives: the receive from any source could go on */
        MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return MPI_Finalize();
    }
    MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &any);
    MPI_Send(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* until it is dead */
    MPI_Test(&any, &flag, MPI_STATUS_IGNORE);
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*is_revoked)(MPI_Comm, int *) = library == NULL ? NULL : dlsym(library, "MPIX_Comm_is_revoked");
    if (flag != 0 || is_revoked == NULL || is_revoked(MPI_COMM_WORLD, &flag) != MPI_SUCCESS) {
        return 1;
    }
    code = MPI_Wait(&any, MPI_STATUS_IGNORE);
    MPI_Send(&word, 1, MPI_INT, 2, 1, MPI_COMM_WORLD);
    printf("receive: %d\\n", code);
    return MPI_Finalize();
}
"""


def loaded_late():
    """A program that has loaded the library after MPI_Init is one that has it from its first call on"""
    program = os.path.join(WORK, "loads")
    source = program + ".c"
    with open(source, "w", encoding="utf-8") as file:
        file.write(LOADS)
    done = subprocess.run([os.environ["FT_MPICC"], "-Wall", "-o", program, source, "-ldl"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, done.stdout)
    result = run(3, DEADLY, program, os.path.join(os.environ["FT_LIB_DIR"], "libmpi_ft.so"))
    result.must("receive: 75" in result.output, "the receive from any source did not end with the failure")


def behind_libmpi():
    """Linked behind libmpi the library says that the makers of communicators are not its own"""
    source = os.path.join(WORK, "validates.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(VALIDATES)
    for before in ((), ("-lmpi",)):
        program = build(os.environ["FT_MPICC"], source, *before)
        result = run(3, {"pml": "dr", "btl": "vader,self"}, program)
        said = result.output.count("was linked with libmpi before libmpi_ft")
        result.must(result.code == 0 and said == len(before), f"said {said} times")


def half_added():
    """A rank that dies while it adds to another's queue in shared memory leaves no gap there that holds the other up"""
    # Through fast boxes, once there are any, the queue is not used.
    settings = dict(DEADLY, btl_vader_fbox_threshold=1000000)
    for how, wanted in (("waits", "had messages"), ("computes", "had messages"), ("empty", "was empty")):
        for _ in range(5):  # somebody else may have had something to say
            steps = os.path.join(WORK, "steps")
            with open(steps, "wb") as file:
                file.write(bytes(8))
            result = run(4, settings, HALF_ADDED, how, steps)
            right = set(re.findall(r"^\s*rank (\d+) right$", result.output, re.M))
            result.must(result.code == 0 and right == {"0", "1", "3"}, f"{how}: right: {right}")
            if f"the queue {wanted}" in result.output:
                break
        else:
            result.must(False, f"{how}: never came to pass")


HELD = r"Rank 1 on \S+ lives, but others have agreed that it has failed"


def wronged():
    """A rank that lives and is suspected stops before anybody returns, and says why"""
    result = run(4, DEADLY, CALLS, "wronged")
    right = set(re.findall(r"^rank (\d+) right$", result.output, re.M))
    result.must(result.code == 0 and right == {"0", "2", "3"}, f"right: {right}")
    result.must(re.search(HELD, " ".join(result.output.split())), "no message")


def cut_off():
    """A rank that nobody reaches: all agree on it, those too that had heard of it before they found out"""
    survivors(4, 1, CALLS, "cut")
    survivors(6, 1, CALLS, "cut")


def teller_dies():
    """A rank dies that has told others of one that it does not reach: the survivors go on with that one"""
    survivors(4, 2, HEARSAY, "dies")


def heard_only():
    """What others say of a rank ends collectives with them, after an agreement that does not confirm it too, no others, and no receive from any source"""
    for what in ("heard", "beside", "across", "meanwhile"):
        result = run(4, DEADLY, HEARSAY, what)
        result.must(result.code == 0 and result.output.count(" right") == 4, f"{what}: somebody was wrong")


def heard_too_late():
    """What a rank says that is recognised as failed, and has not stopped, is worth nothing"""
    survivors(4, 2, HEARSAY, "counted_out")


def kept():
    """MPI_COMM_WORLD and MPI_COMM_SELF cannot be freed, and who has tried still takes part in agreements"""
    result = run(4, DEADLY, CALLS, "kept")
    result.must(result.code == 0 and result.output.count(" right") == 4, "somebody was wrong")


def wronged_without_radixft():
    """The same without a membership service: it stops, and mpirun ends the job, as documented"""
    result = run(4, {"pml": "dr", "btl": "vader,self"}, CALLS, "wronged")
    result.must(result.code != 0, "mpirun went on")
    result.must(re.search(HELD, " ".join(result.output.split())), "no message")
    result.must("wrong:" not in result.output, "somebody was wrong")


def fatal():
    """With MPI_ERRORS_ARE_FATAL the program ends at a failure"""
    result = run(4, DEADLY, CALLS, "fatal")
    result.must(result.code != 0 and "goes on" not in result.output, "it went on")
    result.must("MPI_ERRORS_ARE_FATAL" in result.output, "no message")


def without_component():
    """Without coll/validate the calls are errors with a message"""
    result = run(2, {"pml": "dr", "btl": "vader,self", "coll": "^validate"}, CALLS, "calm")
    result.must(result.code != 0 and 'needs the collective component "validate"'
                in " ".join(result.output.split()), "no message")


EXAMPLES = (
    ("ring", 6, ("20", "2:5", "0:11"), r"^lap 19: 4 members$", 1),
    # A worker surely has its first task in hand once; how many more depends on who gets a core.
    ("manager", 5, ("200", "2:1", "4:1"), r"^200 tasks done, the sum is right$", 1),
    # Their last results come before the news of their deaths, or after it, or not at all.
    *3 * (("manager", 6, ("200", "2:-1", "4:-1", "5:-1"), r"^200 tasks done, the sum is right$", 1),),
    ("solver", 5, ("500", "1:40", "4:100"), r": converged$", 3),
    ("abft", 5, ("16", "2:3"), r": its part of the product is right$", 3),
    ("abft", 4, ("16", "3:5"), r": its part of the product is right$", 3),
)


def build_examples():
    """As their README says."""
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(os.environ["FT_LIB_DIR"], "pkgconfig"))
    command = ["make", "-s", "-C", WORK, "-f", os.path.join(ftmpi.TOP, "contrib/examples/Makefile"),
               f"MPICC={os.environ['FT_MPICC']}", "CFLAGS=-O2 -Wall -Wextra -Werror"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    check(done.returncode == 0, done.stdout)


def examples():
    """The examples build from their Makefile, lose ranks and come to the right end, and nothing alarms"""
    build_examples()
    for btl in ("vader,self", "tcp,self", "vader,tcp,self"):
        for name, ranks, arguments, line, times in EXAMPLES:
            result = run(ranks, dict(DEADLY, btl=btl), os.path.join(WORK, name), *arguments)
            found = re.findall(line, result.output, re.M)
            result.must(result.code == 0 and len(found) == times and "WRONG" not in result.output,
                        f"{name}: {found}")
            killed = sum(":" in word for word in arguments)
            result.must(f"{killed} of {ranks} ranks died" in result.output, f"{name}: nobody died")
            result.must("may now hang" not in result.output, f"{name}: foretold to hang")


def heat():
    """The demonstration's solver builds like the examples, and its result is right, without a failure and with a dead rank"""
    build_examples()
    for btl in ("vader,self", "tcp,self"):
        for killed in ((), ("2:250",)):
            # What an earlier run has kept would be taken for this one's.
            folder = tempfile.mkdtemp(dir=WORK)
            result = run(4, dict(DEADLY, btl=btl), os.path.join(WORK, "heat"), folder, "96", "400", *killed)
            verdicts = re.findall(r"^heat: (right|WRONG)$", result.output, re.M)
            result.must(result.code == 0 and verdicts == ["right"], f"the result is {verdicts}")
            begun = re.findall(r"^heat: (\d) ranks go on after (\d+) iterations$", result.output, re.M)
            result.must(begun[:1] == [("4", "0")], f"it did not begin with all ranks: {begun}")
            if killed:
                result.must("1 of 4 ranks died" in result.output, "nobody died")
                # Every tenth iteration is kept; the others may be some behind the one that dies.
                result.must(len(begun) > 1 and begun[-1][0] == "3" and int(begun[-1][1]) in (240, 250),
                            f"the others did not go on from what was kept: {begun}")
            else:
                result.must("ranks died" not in result.output and len(begun) == 1, f"it began anew: {begun}")


SETS = {
    "library": [pages, component_page, linked, ulfm_in_c, ulfm_in_cxx, fortran],
    "calls": [failures, untouched, waited, begun, half_enabled, own_types, revoker, threads, unsupported, early, another_mpi, loaded_late, other_pml, other_pml_deadly, behind_libmpi, half_added,
              without_component, wronged, cut_off, teller_dies, heard_only, heard_too_late, kept, wronged_without_radixft, fatal],
    "connects": [unconnected_dies, unconnected_revoked],
    "revoked": [revoked_matched, revoked_together, revoked_itself, revoked_buffered, revoked_survivors, revoked_any_source, ignored],
    "examples": [examples, heat],
}

if __name__ == "__main__":
    main(SETS[sys.argv[1]])
