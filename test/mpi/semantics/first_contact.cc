/* Neighbours who send to each other before either has heard of the other, several messages at
 * once: with several paths between them both begin to connect over all of these.
 */
#include "cases.hpp"

#include <vector>

namespace {

using cases::check;
using cases::world;

constexpr int messages = 16;

/* With both neighbours at once, which two ranks are for each other twice. */
void all_send_first()
{
    constexpr int bytes = 1000;
    std::vector<std::vector<unsigned char>> out;
    std::vector<std::vector<unsigned char>> in;
    std::vector<MPI_Request> requests;
    const auto seed = [](int from, int number) {
        return static_cast<std::uint64_t>(from * messages + number);
    };
    for (int i = 0; i < messages; ++i) {
        for (const bool right : {true, false}) {
            out.push_back(cases::pattern(bytes, seed(world().rank, i)));
            in.emplace_back(bytes);
            requests.resize(requests.size() + 2);
            MPI_Irecv(in.back().data(), bytes, MPI_BYTE, right ? world().left() : world().right(),
                      right, MPI_COMM_WORLD, &requests[requests.size() - 2]);
            MPI_Isend(out.back().data(), bytes, MPI_BYTE, right ? world().right() : world().left(),
                      right, MPI_COMM_WORLD, &requests.back());
        }
    }
    check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE) ==
              MPI_SUCCESS,
          "what was sent first arrives");
    for (int i = 0; i < messages; ++i) {
        for (const bool right : {true, false}) {
            cases::expect(in[static_cast<std::size_t>(2 * i + (right ? 0 : 1))],
                          seed(right ? world().left() : world().right(), i), "its bytes");
        }
    }
}

const cases::Case all[] = {{"neighbours send to each other first", all_send_first}};

} // namespace

int main(int argc, char **argv)
{
    return cases::run(argc, argv, MPI_THREAD_SINGLE, all);
}
