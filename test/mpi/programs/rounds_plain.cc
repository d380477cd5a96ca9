/* Rounds of plain non-blocking messages that differ in size, number and order. */
#include "test/mpi/programs/ring.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace ring {

namespace {

/* Sends one message of each size, tags 0.., and receives the same from the left; the receives are
 * posted in the given order. */
void exchange(Ring &ring, const std::vector<std::size_t> &sizes, const std::vector<int> &order)
{
    const std::size_t number = sizes.size();
    std::vector<Buffer> in;
    std::vector<Buffer> out;
    for (std::size_t i = 0; i < number; ++i) {
        in.emplace_back(sizes[i]);
        out.emplace_back(sizes[i]);
        fill(out.back().bytes(), ring.outgoing(static_cast<int>(i)));
    }
    std::vector<MPI_Request> requests(2 * number);
    std::size_t posted = 0;
    for (const int index : order) {
        Buffer &buffer = in[static_cast<std::size_t>(index)];
        MPI_Irecv(buffer.data(), buffer.count(), MPI_BYTE, ring.left(), index, ring.comm,
                  &requests[posted++]);
    }
    for (std::size_t i = 0; i < number; ++i) {
        MPI_Isend(out[i].data(), out[i].count(), MPI_BYTE, ring.right(), static_cast<int>(i),
                  ring.comm, &requests[posted++]);
    }
    MPI_Waitall(static_cast<int>(posted), requests.data(), MPI_STATUSES_IGNORE);
    for (std::size_t i = 0; i < number; ++i) {
        ring.verify(in[i], ring.incoming(static_cast<int>(i)));
    }
}

std::vector<int> forward(std::size_t number)
{
    std::vector<int> order(number);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

} // namespace

void storm(Ring &ring)
{
    constexpr std::size_t number = 64;
    std::vector<std::size_t> sizes(number);
    for (std::size_t i = 0; i < number; ++i) {
        sizes[i] = ring.draw(i, 3000);
    }
    std::vector<int> order = forward(number);
    for (std::size_t i = number - 1; i > 0; --i) {
        std::swap(order[i], order[ring.draw(1000 + i, i + 1)]);
    }
    exchange(ring, sizes, order);
}

void bulk(Ring &ring)
{
    exchange(ring, std::vector<std::size_t>(4, ring.largest), forward(4));
}

void edges(Ring &ring)
{
    /* The eager and fragment limits of the BTLs, give or take a header; and a VFRAG of 64. */
    constexpr std::array<std::size_t, 8> limits{1,     64,         4096,       8192,
                                                65536, 128 * 1024, 512 * 1024, 64 * 65536};
    std::vector<std::size_t> sizes{0};
    for (const std::size_t limit : limits) {
        for (const int step : {-64, -48, -1, 0, 1}) {
            const auto size = static_cast<std::ptrdiff_t>(limit) + step;
            if (size > 0 && static_cast<std::size_t>(size) <= ring.largest) {
                sizes.push_back(static_cast<std::size_t>(size));
            }
        }
    }
    for (const std::size_t size : sizes) {
        exchange(ring, {size}, {0});
    }
}

void order(Ring &ring)
{
    constexpr int number = 40;
    constexpr int tag = 7;
    std::vector<Buffer> in;
    std::vector<Buffer> out;
    std::vector<MPI_Request> requests(2 * number);
    std::size_t posted = 0;
    for (int i = 0; i < number; ++i) {
        /* Small and large by turns: they take different protocols and must not overtake. */
        const auto purpose = static_cast<std::uint64_t>(i);
        const std::size_t size =
            i % 4 == 3 ? ring.draw(purpose, ring.largest / 4 + 1) : ring.draw(purpose, 512);
        in.emplace_back(size);
        out.emplace_back(size);
    }
    for (Buffer &buffer : in) {
        MPI_Irecv(buffer.data(), buffer.count(), MPI_BYTE, ring.left(), tag, ring.comm,
                  &requests[posted++]);
    }
    for (int i = 0; i < number; ++i) {
        Buffer &buffer = out[static_cast<std::size_t>(i)];
        fill(buffer.bytes(), ring.outgoing(i));
        MPI_Isend(buffer.data(), buffer.count(), MPI_BYTE, ring.right(), tag, ring.comm,
                  &requests[posted++]);
    }
    MPI_Waitall(static_cast<int>(posted), requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < number; ++i) {
        ring.verify(in[static_cast<std::size_t>(i)], ring.incoming(i));
    }
}

void late(Ring &ring)
{
    constexpr int number = 100;
    std::vector<Buffer> out;
    std::vector<MPI_Request> requests;
    for (int i = 0; i < number; ++i) {
        const bool large = i % 25 == 24;
        out.emplace_back(large ? ring.largest / 2 : ring.draw(static_cast<std::uint64_t>(i), 200));
    }
    for (int i = 0; i < number; ++i) {
        Buffer &buffer = out[static_cast<std::size_t>(i)];
        fill(buffer.bytes(), ring.outgoing(i));
        MPI_Isend(buffer.data(), buffer.count(), MPI_BYTE, ring.right(), i, ring.comm,
                  &requests.emplace_back());
    }
    /* The last one sent is waited for first: what came before it is unexpected by then. */
    for (int i = number - 1; i >= 0; --i) {
        Buffer in(static_cast<std::size_t>(out[static_cast<std::size_t>(i)].count()));
        MPI_Recv(in.data(), in.count(), MPI_BYTE, ring.left(), i, ring.comm, MPI_STATUS_IGNORE);
        ring.verify(in, ring.incoming(i));
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

} // namespace ring
