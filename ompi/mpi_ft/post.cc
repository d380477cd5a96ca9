#include "ompi/mpi_ft/post.hpp"

#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

namespace {

/// What stands before every body. Both ends have one representation: pml/dr sees to that, and ob1
/// converts nothing inside MPI_BYTE.
struct Envelope {
    std::uint32_t magic;
    std::uint32_t topic;
    std::uint64_t key;
};
constexpr std::uint32_t magic = 0x46545631; // "FTV1"

/// Bytes of the longest message of an agreement: five sets as bitmaps and the fixed part, for as
/// many members as anybody will ever have in a communicator. It may be about one that this process
/// does not know yet.
constexpr std::size_t most_members = std::size_t{1} << 20;
constexpr std::size_t longest_letter = sizeof(Envelope) + 256 + 5 * (most_members / 8 + 16);

} // namespace

void Post::close() noexcept
{
    while (!lines_.empty()) {
        hang_up(lines_.begin()->first);
    }
}

void Post::listen_on(ompi_communicator_t *comm)
{
    if (lines_.contains(comm)) {
        return;
    }
    auto line = std::make_unique<Line>();
    line->comm = comm;
    // Not written to before a message comes, so it costs address space only.
    line->buffer = std::unique_ptr<std::byte[]>(new std::byte[longest_letter]);
    listen(*(lines_[comm] = std::move(line)));
}

void Post::hang_up(ompi_communicator_t *comm) noexcept
{
    const auto found = lines_.find(comm);
    if (found == lines_.end()) {
        return;
    }
    std::unique_ptr<Line> line = std::move(found->second);
    lines_.erase(found);
    if (line->receive != nullptr) {
        if (line->posted) {
            line->receive->req_complete_cb = nullptr;
            ompi_request_cancel(line->receive);
        }
        ompi_request_t *request = line->receive;
        if (line->posted && !REQUEST_COMPLETE(request)) {
            static_cast<void>(line.release()); // a message is on its way into the buffer
        }
        ompi_request_free(&request);
    }
}

void Post::listen(Line &line) noexcept
{
    if (line.receive == nullptr &&
        MCA_PML_CALL(irecv_init(line.buffer.get(), longest_letter, &ompi_mpi_byte.dt,
                                MPI_ANY_SOURCE, process::agreement_tag, line.comm,
                                &line.receive)) != OMPI_SUCCESS) {
        line.receive = nullptr;
        return;
    }
    // What is there already is taken in a loop rather than by a callback inside a callback. The
    // callback is in its place before the receive is active: another thread may complete it at any
    // time from then on, and waits in the callback for the lock that is held here.
    while (!line.posted) {
        line.receive->req_complete_cb = on_received;
        line.receive->req_complete_cb_data = &line;
        line.starting = true;
        line.came = false;
        const int rc = MCA_PML_CALL(start(1, &line.receive));
        line.starting = false;
        if (rc != OMPI_SUCCESS) {
            return;
        }
        if (!line.came) {
            line.posted = true;
        } else if (!take(line)) {
            return;
        }
    }
}

int Post::on_received(ompi_request_t *request) noexcept
{
    Line &line = *static_cast<Line *>(request->req_complete_cb_data);
    const Lock lock; // letting it go handles what was taken
    if (line.starting) {
        line.came = true; // by this thread: nobody else has the lock
        return OMPI_SUCCESS;
    }
    line.posted = false;
    if (request->req_status._cancelled != 0) {
        return OMPI_SUCCESS;
    }
    Post &self = service().post();
    if (self.take(line)) {
        self.listen(line);
        return 1; // the request is active again
    }
    return OMPI_SUCCESS;
}

bool Post::take(Line &line)
{
    const ompi_status_public_t status = line.receive->req_status;
    Envelope envelope;
    if (status.MPI_ERROR != MPI_SUCCESS) {
        return false; // everybody else is gone
    }
    if (status._ucount < sizeof envelope) {
        return true;
    }
    const std::byte *const bytes = line.buffer.get();
    std::memcpy(&envelope, bytes, sizeof envelope);
    if (envelope.magic != magic) {
        return true;
    }
    const bool world = line.comm == &ompi_mpi_comm_world.comm;
    Letter letter;
    if (world) {
        letter.from =
            id_of(OMPI_PROC_MY_NAME->jobid, static_cast<std::uint32_t>(status.MPI_SOURCE));
    } else {
        const opal_process_name_t name =
            ompi_group_get_proc_name(line.comm->c_remote_group, status.MPI_SOURCE);
        letter.from = id_of(name.jobid, name.vpid);
    }
    letter.topic = static_cast<Topic>(envelope.topic);
    letter.key = envelope.key;
    letter.body = {bytes + sizeof envelope, bytes + status._ucount};
    receiver_(letter, world);
    return true;
}

std::vector<std::byte> &Post::compose(Topic topic, std::uint64_t key)
{
    const Envelope envelope{magic, static_cast<std::uint32_t>(topic), key};
    scratch_.resize(sizeof envelope);
    std::memcpy(scratch_.data(), &envelope, sizeof envelope);
    return scratch_;
}

std::span<std::byte> Post::compose(Topic topic, std::uint64_t key, std::size_t most)
{
    const Envelope envelope{magic, static_cast<std::uint32_t>(topic), key};
    if (scratch_.size() < sizeof envelope + most) {
        scratch_.resize(sizeof envelope + most);
    }
    std::memcpy(scratch_.data(), &envelope, sizeof envelope);
    return std::span(scratch_).subspan(sizeof envelope);
}

void Post::dispatch_body(const Route &to, std::size_t length)
{
    dispatch(to, sizeof(Envelope) + length);
}

void Post::dispatch(const Route &to, std::size_t length)
{
    ompi_request_t *request = nullptr;
    const int rc =
        MCA_PML_CALL(isend(scratch_.data(), length, &ompi_mpi_byte.dt, to.rank,
                           process::agreement_tag, MCA_PML_BASE_SEND_STANDARD, to.comm, &request));
    if (rc != OMPI_SUCCESS) {
        return;
    }
    if (REQUEST_COMPLETE(request)) {
        ompi_request_free(&request);
        return;
    }
    // The bytes stay where they are until they have left.
    outgoing_.push_back({request, std::move(scratch_)});
    scratch_.clear();
}

void Post::reap() noexcept
{
    for (auto at = outgoing_.begin(); at != outgoing_.end();) {
        if (REQUEST_COMPLETE(at->request)) {
            ompi_request_free(&at->request);
            at = outgoing_.erase(at);
        } else {
            ++at;
        }
    }
}

} // namespace ft::validate
