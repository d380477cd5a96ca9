#include "orte_glue/radixft/streams.hpp"

#include "orte_glue/radixft/callbacks.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/wire.hpp"

#include <algorithm>

namespace ft::radixft {

namespace {

orte_rml_API_send_buffer_nb_fn_t send_really = nullptr;
Streams *streams = nullptr;

/// What is asked for again when it is missing, or means nothing. Of the smaller protocols' not all
/// is, RESUME for one.
bool is_repeated(orte_rml_tag_t tag)
{
    return tag == protocol_tag || tag == launch_tag || tag == opening_tag;
}

} // namespace

/// Of a message that is on its way to the kernel.
struct Streams::Note {
    orte_rml_conduit_t conduit;
    orte_rml_buffer_callback_fn_t done;
    void *data;
};

void Streams::start()
{
    if (!started_) {
        started_ = true;
        streams = this;
        send_really = std::exchange(orte_rml.send_buffer_nb, send);
    }
}

void Streams::stop()
{
    if (std::exchange(started_, false)) {
        FT_ASSERT(orte_rml.send_buffer_nb == send); // who came later has gone
        orte_rml.send_buffer_nb = send_really;
    }
    streams_.clear();
    ended_.clear();
}

int Streams::send(orte_rml_conduit_t conduit, orte_process_name_t *peer, opal_buffer_t *buffer,
                  orte_rml_tag_t tag, orte_rml_buffer_callback_fn_t done, void *data) noexcept
{
    if (peer == nullptr || peer->jobid != ORTE_PROC_MY_NAME->jobid ||
        peer->vpid == ORTE_PROC_MY_NAME->vpid) {
        return send_really(conduit, peer, buffer, tag, done, data);
    }
    auto *const note = new Note{.conduit = conduit, .done = done, .data = data};
    const int rc = send_really(conduit, peer, buffer, tag, written, note);
    if (rc != ORTE_SUCCESS) {
        delete note;
    }
    return rc;
}

void Streams::written(int status, orte_process_name_t *peer, opal_buffer_t *buffer,
                      orte_rml_tag_t tag, void *data) noexcept
{
    const std::unique_ptr<const Note> note(static_cast<Note *>(data));
    if (status == ORTE_SUCCESS) {
        std::optional<Message> kept;
        if (!is_repeated(tag)) {
            OBJ_RETAIN(buffer);
            kept = Message{note->conduit, tag, decltype(Message::buffer)(buffer)};
        }
        streams->streams_[peer->vpid].sent.add(OobPeer::bytes_of(*buffer), std::move(kept));
    }
    if (note->done != nullptr) {
        note->done(status, peer, buffer, tag, note->data);
    }
}

void Streams::look(NodeId id, const OobPeer &peer)
{
    if (!started_) {
        return;
    }
    Stream &stream = streams_[id];
    if (stream.ports == Ports{}) {
        // It was there before this daemon began to count.
        stream.ports = peer.ports();
        stream.socket = peer.socket();
    } else if (stream.sent.kept() == 0) {
        return;
    }
    const auto traffic = peer.traffic(stream.ports);
    if (!traffic) {
        return;
    }
    if (traffic->written) {
        // Including what was there before it was counted, and is sent past this class.
        stream.sent.ends_at(*traffic->written);
    }
    stream.sent.on_their_way(traffic->on_their_way);
}

void Streams::given_up(NodeId id, const OobPeer &peer)
{
    look(id, peer);
    if (const auto found = streams_.find(id); found != streams_.end()) {
        found->second.given_up = true;
    }
}

void Streams::lost(NodeId id)
{
    if (const auto found = streams_.find(id); found != streams_.end() && !found->second.given_up) {
        streams_.erase(found);
    }
}

void Streams::ended(NodeId id)
{
    streams_.erase(id);
    ended_.erase(id);
}

Bytes Streams::connected(NodeId id, OobPeer &peer, bool replaced)
{
    if (!started_) {
        return {};
    }
    Stream before = std::exchange(streams_[id], {});
    streams_[id].ports = peer.ports();
    streams_[id].socket = peer.socket();
    if (before.ports == Ports{} || !(before.given_up || replaced)) {
        return {};
    }
    Bytes body(4 + 4 + 8);
    base::WireWriter out(body);
    out.u32(before.ports.there);
    out.u32(before.ports.here);
    out.u64(peer.take_rest(before.socket.number()));
    before.socket = {};
    ended_.emplace(id, std::move(before));
    return body;
}

bool Streams::on_resume(NodeId id, std::span<const std::byte> body)
{
    base::WireReader in(body);
    Ports ports;
    ports.here = in.u32();
    ports.there = in.u32();
    const std::uint64_t had = in.u64();
    if (!in.complete()) {
        return false;
    }
    auto [found, end] = ended_.equal_range(id);
    found = std::find_if(found, end, [&](const auto &one) { return one.second.ports == ports; });
    if (found == end) {
        return true; // of a connection that is longer ago
    }
    const std::uint64_t written = found->second.sent.end();
    std::vector<Message> missing = found->second.sent.take_after(had);
    ended_.erase(found);
    if (!missing.empty()) {
        story(2, "sends daemon %u %zu messages again: it has had %llu bytes of %llu", id,
              missing.size(), static_cast<unsigned long long>(had),
              static_cast<unsigned long long>(written));
    }
    orte_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    for (Message &m : missing) {
        opal_buffer_t *buffer = m.buffer.release();
        if (send(m.conduit, &name, buffer, m.tag, Callbacks::sent, nullptr) != ORTE_SUCCESS) {
            OBJ_RELEASE(buffer);
        }
    }
    return true;
}

} // namespace ft::radixft
