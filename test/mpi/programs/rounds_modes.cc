/* Rounds that use the less common ways of MPI to send and receive. */
#include "test/mpi/programs/ring.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace ring {

namespace {

void send_synchronous(Ring &ring, std::size_t size, int index)
{
    Buffer out(size);
    Buffer in(size);
    fill(out.bytes(), ring.outgoing(index));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(in.data(), in.count(), MPI_BYTE, ring.left(), index, ring.comm, &request);
    MPI_Ssend(out.data(), out.count(), MPI_BYTE, ring.right(), index, ring.comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ring.verify(in, ring.incoming(index));
}

void send_buffered(Ring &ring, std::size_t size, int index)
{
    std::vector<std::byte> space(size + MPI_BSEND_OVERHEAD);
    Buffer in(size);
    MPI_Buffer_attach(space.data(), static_cast<int>(space.size()));
    {
        Buffer out(size);
        fill(out.bytes(), ring.outgoing(index));
        MPI_Bsend(out.data(), out.count(), MPI_BYTE, ring.right(), index, ring.comm);
        /* The buffer is ours again at once. */
        std::fill(out.bytes().begin(), out.bytes().end(), std::byte{0});
    }
    MPI_Recv(in.data(), in.count(), MPI_BYTE, ring.left(), index, ring.comm, MPI_STATUS_IGNORE);
    void *returned = nullptr;
    int returned_size = 0;
    MPI_Buffer_detach(static_cast<void *>(&returned), &returned_size);
    ring.verify(in, ring.incoming(index));
}

void send_ready(Ring &ring, std::size_t size, int index)
{
    constexpr int ready_tag = 9999;
    Buffer out(size);
    Buffer in(size);
    fill(out.bytes(), ring.outgoing(index));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(in.data(), in.count(), MPI_BYTE, ring.left(), index, ring.comm, &request);
    MPI_Sendrecv(nullptr, 0, MPI_BYTE, ring.left(), ready_tag, nullptr, 0, MPI_BYTE, ring.right(),
                 ready_tag, ring.comm, MPI_STATUS_IGNORE);
    MPI_Rsend(out.data(), out.count(), MPI_BYTE, ring.right(), index, ring.comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ring.verify(in, ring.incoming(index));
}

void send_persistent(Ring &ring, std::size_t size, int first_index)
{
    Buffer out(size);
    Buffer in(size);
    constexpr int tag = 50;
    constexpr int repeats = 3;
    std::array<MPI_Request, 2> requests{};
    MPI_Recv_init(in.data(), in.count(), MPI_BYTE, ring.left(), tag, ring.comm, requests.data());
    MPI_Send_init(out.data(), out.count(), MPI_BYTE, ring.right(), tag, ring.comm, &requests[1]);
    for (int i = 0; i < repeats; ++i) {
        fill(out.bytes(), ring.outgoing(first_index + i));
        MPI_Startall(2, requests.data());
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        ring.verify(in, ring.incoming(first_index + i));
    }
    MPI_Request_free(requests.data());
    MPI_Request_free(&requests[1]);
}

void send_replace(Ring &ring, std::size_t size, int index)
{
    Buffer both(size);
    fill(both.bytes(), ring.outgoing(index));
    MPI_Sendrecv_replace(both.data(), both.count(), MPI_BYTE, ring.right(), index, ring.left(),
                         index, ring.comm, MPI_STATUS_IGNORE);
    ring.verify(both, ring.incoming(index));
}

/* Gathers the bytes that a datatype selects from memory. */
std::vector<std::byte> packed(std::span<const std::byte> memory, std::size_t block,
                              std::size_t stride)
{
    std::vector<std::byte> result;
    for (std::size_t at = 0; at + block <= memory.size(); at += stride) {
        result.insert(result.end(), memory.begin() + static_cast<std::ptrdiff_t>(at),
                      memory.begin() + static_cast<std::ptrdiff_t>(at + block));
    }
    return result;
}

/* Sends with a strided datatype; one end may be contiguous. */
void send_strided(Ring &ring, MPI_Datatype type, std::size_t block, std::size_t stride,
                  std::size_t blocks, bool strided_out, bool strided_in, int index)
{
    const std::size_t extent = (blocks - 1) * stride + block;
    const std::size_t size = blocks * block;
    std::vector<std::byte> content(size);
    fill(content, ring.outgoing(index));
    Buffer out(strided_out ? extent : size);
    Buffer in(strided_in ? extent : size);
    if (strided_out) {
        for (std::size_t i = 0; i < blocks; ++i) {
            std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(i * block), block,
                        out.data() + i * stride);
        }
    } else {
        std::copy(content.begin(), content.end(), out.data());
    }
    const std::byte hole{0x11};
    std::fill(in.bytes().begin(), in.bytes().end(), hole);
    MPI_Sendrecv(out.data(), strided_out ? 1 : out.count(), strided_out ? type : MPI_BYTE,
                 ring.right(), index, in.data(), strided_in ? 1 : in.count(),
                 strided_in ? type : MPI_BYTE, ring.left(), index, ring.comm, MPI_STATUS_IGNORE);
    ring.verify_bytes(strided_in ? packed(in.bytes(), block, stride)
                                 : packed(in.bytes(), size, size),
                      ring.incoming(index));
    if (strided_in) {
        for (std::size_t at = 0; at < extent; ++at) {
            if (at % stride >= block && in.bytes()[at] != hole) {
                ring.complain("a hole of the datatype was written to");
                break;
            }
        }
    }
}

} // namespace

void modes(Ring &ring)
{
    int index = 0;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{100}, std::size_t{70000}, ring.largest / 2}) {
        send_synchronous(ring, size, index++);
        send_buffered(ring, size, index++);
        send_ready(ring, size, index++);
        send_replace(ring, size, index++);
        send_persistent(ring, size, index);
        index += 3;
    }
}

void shapes(Ring &ring)
{
    int index = 0;
    for (const std::size_t target : {std::size_t{500}, std::size_t{100000}, ring.largest / 2}) {
        const std::size_t block = 1 + ring.draw(static_cast<std::uint64_t>(index), 40);
        const std::size_t stride = block + 1 + ring.draw(static_cast<std::uint64_t>(index) + 9, 30);
        const std::size_t blocks = target / block + 1;
        MPI_Datatype vector = MPI_DATATYPE_NULL;
        MPI_Type_vector(static_cast<int>(blocks), static_cast<int>(block), static_cast<int>(stride),
                        MPI_BYTE, &vector);
        MPI_Type_commit(&vector);
        std::vector<int> places(blocks);
        for (std::size_t i = 0; i < blocks; ++i) {
            places[i] = static_cast<int>(i * stride);
        }
        MPI_Datatype indexed = MPI_DATATYPE_NULL;
        MPI_Type_create_indexed_block(static_cast<int>(blocks), static_cast<int>(block),
                                      places.data(), MPI_BYTE, &indexed);
        MPI_Type_commit(&indexed);
        send_strided(ring, vector, block, stride, blocks, true, false, index++);
        send_strided(ring, vector, block, stride, blocks, false, true, index++);
        send_strided(ring, indexed, block, stride, blocks, true, true, index++);
        MPI_Type_free(&vector);
        MPI_Type_free(&indexed);
    }
}

void wildcard(Ring &ring)
{
    constexpr int tags = 4;
    const int number = tags * (ring.size - 1);
    std::vector<Buffer> in;
    std::vector<Buffer> out;
    std::vector<MPI_Request> receives(static_cast<std::size_t>(number));
    std::vector<MPI_Request> sends;
    const std::size_t space = std::max<std::size_t>(ring.largest / 8, 512);
    for (int i = 0; i < number; ++i) {
        in.emplace_back(space);
        MPI_Irecv(in.back().data(), in.back().count(), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                  ring.comm, &receives[static_cast<std::size_t>(i)]);
    }
    const auto size_of = [&](int tag) { return ring.draw(static_cast<std::uint64_t>(tag), space); };
    for (int to = 0; to < ring.size; ++to) {
        for (int tag = 0; tag < tags && to != ring.rank; ++tag) {
            out.emplace_back(size_of(tag));
            fill(out.back().bytes(), {ring.seed, ring.rank, to, ring.round, tag});
            MPI_Isend(out.back().data(), out.back().count(), MPI_BYTE, to, tag, ring.comm,
                      &sends.emplace_back());
        }
    }
    std::vector<int> seen(static_cast<std::size_t>(ring.size * tags));
    for (int i = 0; i < number; ++i) {
        int which = 0;
        MPI_Status status;
        int count = 0;
        MPI_Waitany(number, receives.data(), &which, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        Buffer &buffer = in[static_cast<std::size_t>(which)];
        if (status.MPI_TAG < 0 || status.MPI_TAG >= tags || status.MPI_SOURCE < 0 ||
            status.MPI_SOURCE >= ring.size) {
            ring.complain("a wildcard receive gave a tag or source nobody uses");
            continue;
        }
        if (static_cast<std::size_t>(count) != size_of(status.MPI_TAG)) {
            ring.complain("a wildcard receive got a wrong size");
        }
        if (seen[static_cast<std::size_t>(status.MPI_SOURCE * tags + status.MPI_TAG)]++ != 0) {
            ring.complain("a message came twice");
        }
        ring.verify_bytes(buffer.bytes().first(static_cast<std::size_t>(count)),
                          {ring.seed, status.MPI_SOURCE, ring.rank, ring.round, status.MPI_TAG});
    }
    MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE);
    /* Nobody may begin the next round while another still takes messages from anybody. */
    MPI_Barrier(ring.comm);
}

void probe(Ring &ring)
{
    constexpr int number = 6;
    std::vector<Buffer> out;
    std::vector<MPI_Request> requests(number);
    for (int i = 0; i < number; ++i) {
        const auto purpose = static_cast<std::uint64_t>(i);
        out.emplace_back(i % 2 == 0 ? ring.draw(purpose, 300) : ring.draw(purpose, ring.largest));
        fill(out.back().bytes(), ring.outgoing(i));
    }
    for (int i = 0; i < number; ++i) {
        Buffer &buffer = out[static_cast<std::size_t>(i)];
        MPI_Isend(buffer.data(), buffer.count(), MPI_BYTE, ring.right(), i, ring.comm,
                  &requests[static_cast<std::size_t>(i)]);
    }
    for (int i = 0; i < number; ++i) {
        MPI_Status status;
        int count = 0;
        if (i % 3 == 2) {
            MPI_Message message = MPI_MESSAGE_NULL;
            MPI_Mprobe(ring.left(), i, ring.comm, &message, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            Buffer in(static_cast<std::size_t>(count));
            MPI_Mrecv(in.data(), in.count(), MPI_BYTE, &message, MPI_STATUS_IGNORE);
            ring.verify(in, ring.incoming(i));
        } else {
            int there = 0;
            while (i % 3 == 1 && there == 0) {
                MPI_Iprobe(ring.left(), i, ring.comm, &there, &status);
            }
            if (i % 3 == 0) {
                MPI_Probe(ring.left(), i, ring.comm, &status);
            }
            MPI_Get_count(&status, MPI_BYTE, &count);
            Buffer in(static_cast<std::size_t>(count));
            MPI_Recv(in.data(), in.count(), MPI_BYTE, ring.left(), i, ring.comm, MPI_STATUS_IGNORE);
            ring.verify(in, ring.incoming(i));
        }
        if (count != out[static_cast<std::size_t>(i)].count()) {
            ring.complain("a probe gave a wrong size");
        }
    }
    MPI_Waitall(number, requests.data(), MPI_STATUSES_IGNORE);
}

void collect(Ring &ring)
{
    std::vector<long> numbers(5000);
    std::iota(numbers.begin(), numbers.end(), ring.rank);
    MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_LONG, MPI_SUM,
                  ring.comm);
    const long ranks = ring.size;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] != ranks * static_cast<long>(i) + ranks * (ranks - 1) / 2) {
            ring.complain("an all-reduce gave a wrong sum");
            break;
        }
    }
    const int root = static_cast<int>(ring.round % ranks);
    Buffer content(ring.largest / 2);
    const MessageName name{ring.seed, root, -1, ring.round, 0};
    if (ring.rank == root) {
        fill(content.bytes(), name);
    }
    MPI_Bcast(content.data(), content.count(), MPI_BYTE, root, ring.comm);
    ring.verify(content, name);

    const std::size_t part = ring.draw(1, ring.largest / 8 + 1);
    Buffer out(part * static_cast<std::size_t>(ranks));
    Buffer in(part * static_cast<std::size_t>(ranks));
    for (int to = 0; to < ring.size; ++to) {
        fill(out.bytes().subspan(part * static_cast<std::size_t>(to), part),
             {ring.seed, ring.rank, to, ring.round, 1});
    }
    MPI_Alltoall(out.data(), static_cast<int>(part), MPI_BYTE, in.data(), static_cast<int>(part),
                 MPI_BYTE, ring.comm);
    for (int from = 0; from < ring.size; ++from) {
        ring.verify_bytes(in.bytes().subspan(part * static_cast<std::size_t>(from), part),
                          {ring.seed, from, ring.rank, ring.round, 1});
    }
    MPI_Barrier(ring.comm);
}

} // namespace ring
