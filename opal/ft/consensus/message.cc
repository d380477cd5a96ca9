// Layout, little endian. Fixed part:
//   u8 version  u8 kind  u16 presence bits  u64 context, unless its bit says 0  u32 sequence
// then, each only if its bit is set and in this order: number (12), seen (12), range (8),
// stage and step (2), suspects, unconfirmed, flags (8), acknowledged, accepted: number (12),
// failed, flags (8), acknowledged. A set: u8 form; form 1: u32 count of runs, then first and end of
// each as u32; form 2: u32 lowest rank, u32 count of bytes, then the bits from the lowest rank on.
#include "opal/ft/consensus/message.hpp"

#include "opal/ft/base/assert.hpp"
#include "opal/ft/base/wire.hpp"

#include <array>
#include <cstring>

namespace ft::consensus {

namespace {

using base::WireReader;
using base::WireWriter;

constexpr std::uint8_t version = 1;
constexpr std::uint8_t form_runs = 1;
constexpr std::uint8_t form_bitmap = 2;

enum Bit : std::uint16_t {
    has_number = 1U << 0,
    has_seen = 1U << 1,
    has_below = 1U << 2,
    has_step = 1U << 3,
    is_ok = 1U << 4,
    has_suspects = 1U << 5,
    has_unconfirmed = 1U << 6,
    has_flags = 1U << 7,
    has_acknowledged = 1U << 8,
    has_accepted = 1U << 9,
    accepted_has_failed = 1U << 10,
    accepted_has_flags = 1U << 11,
    accepted_has_acknowledged = 1U << 12,
    no_context = 1U << 13, ///< it is 0, and not there
};

constexpr std::uint64_t no_flags = ~std::uint64_t{0};

struct SetCost {
    std::size_t runs;
    std::size_t bitmap;
    std::size_t least() const { return std::min(runs, bitmap); }
};

SetCost cost(const RankSet &set)
{
    const auto &runs = set.runs();
    const std::size_t span = runs.back().end - runs.front().first;
    return {1 + 4 + 8 * runs.size(), 1 + 8 + (span + 7) / 8};
}

std::size_t room(const RankSet &set)
{
    return set.empty() ? 0 : cost(set).least();
}

void put_set(WireWriter &out, const RankSet &set)
{
    if (set.empty()) {
        return;
    }
    const auto &runs = set.runs();
    const SetCost c = cost(set);
    if (c.runs <= c.bitmap) {
        out.u8(form_runs);
        out.u32(static_cast<std::uint32_t>(runs.size()));
        for (const auto &run : runs) {
            out.u32(run.first);
            out.u32(run.end);
        }
        return;
    }
    const Rank low = runs.front().first;
    std::vector<std::byte> bits((runs.back().end - low + 7) / 8);
    for (const auto &run : runs) {
        for (Rank rank = run.first; rank < run.end; ++rank) {
            bits[(rank - low) / 8] |= std::byte{1} << ((rank - low) % 8);
        }
    }
    out.u8(form_bitmap);
    out.u32(low);
    out.u32(static_cast<std::uint32_t>(bits.size()));
    out.bytes(bits);
}

RankSet get_runs(WireReader &in, Rank size)
{
    const std::uint32_t count = in.u32();
    if (count == 0 || count > in.remaining() / 8) {
        in.fail();
        return {};
    }
    RankSet::Builder builder;
    std::uint64_t floor = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Rank first = in.u32();
        const Rank end = in.u32();
        if (first < floor || first >= end || end > size) {
            in.fail();
            return {};
        }
        builder.add(first, end);
        floor = std::uint64_t{end} + 1;
    }
    return builder.take();
}

RankSet get_bitmap(WireReader &in, Rank size)
{
    const Rank low = in.u32();
    const std::uint32_t length = in.u32();
    const auto bits = in.bytes(length);
    if (!in.ok() || bits.empty() || low >= size || bits.back() == std::byte{0} ||
        (bits.front() & std::byte{1}) == std::byte{0}) {
        in.fail();
        return {};
    }
    RankSet::Builder builder;
    for (std::size_t i = 0; i < bits.size(); ++i) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            if ((bits[i] >> bit & std::byte{1}) == std::byte{0}) {
                continue;
            }
            const std::uint64_t rank = std::uint64_t{low} + 8 * i + bit;
            if (rank >= size) {
                in.fail();
                return {};
            }
            builder.add(static_cast<Rank>(rank), static_cast<Rank>(rank) + 1);
        }
    }
    return builder.take();
}

RankSet get_set(WireReader &in, Rank size)
{
    switch (in.u8()) {
    case form_runs:
        return get_runs(in, size);
    case form_bitmap:
        return get_bitmap(in, size);
    default:
        in.fail();
        return {};
    }
}

void put_number(WireWriter &out, const Number &number)
{
    out.u32(number.round);
    out.u32(number.root);
    out.u32(number.attempt);
}

/// A tree's number, or none at all where `may_be_none`.
Number get_number(WireReader &in, Rank size, bool may_be_none = false)
{
    Number number;
    number.round = in.u32();
    number.root = in.u32();
    number.attempt = in.u32();
    // No honest group comes near the ends of the counters, where they would wrap.
    constexpr std::uint32_t most = 1U << 30;
    if (number.round > most || number.attempt > most || number.root >= size ||
        (!number && !(may_be_none && number == Number{}))) {
        in.fail();
    }
    return number;
}

std::uint16_t presence(const Message &m)
{
    unsigned bits = 0;
    const auto put = [&](bool there, unsigned bit) { bits |= there ? bit : 0U; };
    put(m.instance.context == 0, no_context);
    put(static_cast<bool>(m.number), has_number);
    put(static_cast<bool>(m.seen), has_seen);
    put(m.below.has_value(), has_below);
    put(m.kind == Kind::exchange || m.kind == Kind::answer, has_step);
    put(m.ok, is_ok);
    put(!m.suspects.empty(), has_suspects);
    put(!m.unconfirmed.empty(), has_unconfirmed);
    put(m.flags != no_flags, has_flags);
    put(!m.acknowledged.empty(), has_acknowledged);
    if (m.accepted) {
        const Value &value = m.accepted->value;
        put(true, has_accepted);
        put(!value.failed.empty(), accepted_has_failed);
        put(value.flags != no_flags, accepted_has_flags);
        put(!value.acknowledged.empty(), accepted_has_acknowledged);
    }
    return static_cast<std::uint16_t>(bits);
}

std::size_t length(const Message &m)
{
    std::size_t total = m.instance.context == 0 ? 8 : 16;
    total += m.number ? 12 : 0;
    total += m.seen ? 12 : 0;
    total += m.below ? 8 : 0;
    total += m.kind == Kind::exchange || m.kind == Kind::answer ? 2 : 0;
    total += room(m.suspects) + room(m.unconfirmed) + room(m.acknowledged);
    total += m.flags != no_flags ? 8 : 0;
    if (m.accepted) {
        const Value &value = m.accepted->value;
        total += 12 + room(value.failed) + room(value.acknowledged);
        total += value.flags != no_flags ? 8 : 0;
    }
    return total;
}

/// What a kind must have, and what it may have besides.
struct Fields {
    unsigned must;
    unsigned may;
};

std::optional<Fields> fields(std::uint8_t kind)
{
    constexpr unsigned sets = has_suspects | has_unconfirmed;
    constexpr unsigned brought = has_flags | has_acknowledged;
    constexpr unsigned value = accepted_has_failed | accepted_has_flags | accepted_has_acknowledged;
    switch (static_cast<Kind>(kind)) {
    case Kind::exchange:
        return Fields{has_step, sets | brought};
    case Kind::ballot:
        return Fields{has_number | has_below, sets};
    case Kind::commit:
        return Fields{has_number | has_accepted, has_below | sets | value};
    case Kind::decide:
        return Fields{has_accepted, has_number | has_below | sets | value};
    case Kind::answer:
        return Fields{has_number | has_step, is_ok | sets | brought | has_accepted | value};
    case Kind::refuse:
        return Fields{has_number | has_seen, sets};
    case Kind::report:
        return Fields{0, has_number | has_below | sets};
    case Kind::stop:
    case Kind::stopped:
        return Fields{0, 0};
    }
    return std::nullopt;
}

/// The first word of a plain step. \param bits which fields it has that not all have
constexpr std::uint32_t plain_front(unsigned bits)
{
    return version | std::uint32_t{static_cast<std::uint8_t>(Kind::exchange)} << 8 |
           (has_step | bits) << 16;
}

} // namespace

std::vector<std::byte> encode(const Message &m)
{
    std::vector<std::byte> bytes;
    encode(m, bytes);
    return bytes;
}

Tag::Tag(RankSet set) : set_(std::move(set)), bytes_(room(set_))
{
    WireWriter out(bytes_);
    put_set(out, set_);
}

std::size_t encode_plain(const InstanceId &instance, const Tag &tag, const PlainStep &step,
                         std::span<std::byte> out)
{
    FT_ASSERT(out.size() >= longest_plain + tag.bytes().size());
    const bool flags = step.flags != no_flags;
    WireWriter writer(out);
    writer.u32(plain_front((flags ? unsigned{has_flags} : 0U) |
                           (tag.bytes().empty() ? 0U : unsigned{has_suspects}) |
                           (instance.context == 0 ? unsigned{no_context} : 0U)));
    if (instance.context != 0) {
        writer.u64(instance.context);
    }
    writer.u32(instance.sequence);
    writer.u16(static_cast<std::uint16_t>(static_cast<unsigned>(step.stage) | step.step << 8U));
    if (!tag.bytes().empty()) {
        writer.bytes(tag.bytes());
    }
    if (flags) {
        writer.u64(step.flags);
    }
    return writer.position();
}

bool decode_plain(std::span<const std::byte> bytes, const Tag &tag, InstanceId &instance,
                  PlainStep &step)
{
    WireReader in(bytes);
    const std::uint32_t front = in.u32();
    const unsigned bits = front >> 16 & (has_flags | no_context);
    const std::size_t length = tag.bytes().size();
    if (front != plain_front(bits | (length == 0 ? 0U : unsigned{has_suspects}))) {
        return false;
    }
    instance.context = (bits & no_context) != 0 ? 0 : in.u64();
    instance.sequence = in.u32();
    const unsigned stage_and_step = in.u16();
    const unsigned stage = stage_and_step & 0xff;
    step.stage = static_cast<Stage>(stage);
    step.step = static_cast<std::uint8_t>(stage_and_step >> 8);
    if (length != 0) {
        const auto set = in.bytes(length);
        if (!in.ok() || std::memcmp(set.data(), tag.bytes().data(), length) != 0) {
            return false;
        }
    }
    step.flags = (bits & has_flags) != 0 ? in.u64() : no_flags;
    return in.complete() && stage <= static_cast<unsigned>(Stage::commit) && step.step <= no_step;
}

Message message_of(const InstanceId &instance, const RankSet &tag, const PlainStep &step)
{
    Message message(Kind::exchange);
    message.instance = instance;
    message.stage = step.stage;
    message.step = step.step;
    message.suspects = tag;
    message.flags = step.flags;
    return message;
}

void encode(const Message &m, std::vector<std::byte> &bytes)
{
    const std::size_t before = bytes.size();
    bytes.resize(before + length(m));
    WireWriter out(std::span<std::byte>(bytes).subspan(before));
    out.u8(version);
    out.u8(static_cast<std::uint8_t>(m.kind));
    out.u16(presence(m));
    if (m.instance.context != 0) {
        out.u64(m.instance.context);
    }
    out.u32(m.instance.sequence);
    if (m.number) {
        put_number(out, m.number);
    }
    if (m.seen) {
        put_number(out, m.seen);
    }
    if (m.below) {
        out.u32(m.below->begin);
        out.u32(m.below->end);
    }
    if (m.kind == Kind::exchange || m.kind == Kind::answer) {
        out.u8(static_cast<std::uint8_t>(m.stage));
        out.u8(m.step);
    }
    put_set(out, m.suspects);
    put_set(out, m.unconfirmed);
    if (m.flags != no_flags) {
        out.u64(m.flags);
    }
    put_set(out, m.acknowledged);
    if (m.accepted) {
        const Value &value = m.accepted->value;
        put_number(out, m.accepted->number);
        put_set(out, value.failed);
        if (value.flags != no_flags) {
            out.u64(value.flags);
        }
        put_set(out, value.acknowledged);
    }
    FT_ASSERT(out.ok() && out.remaining() == 0);
}

std::optional<InstanceId> instance_of(std::span<const std::byte> bytes)
{
    WireReader in(bytes);
    const std::uint32_t front = in.u32();
    InstanceId instance;
    instance.context = (front >> 16 & no_context) != 0 ? 0 : in.u64();
    instance.sequence = in.u32();
    return in.ok() ? std::optional(instance) : std::nullopt;
}

std::optional<Message> decode(std::span<const std::byte> bytes, Rank size)
{
    WireReader in(bytes);
    Message m;
    const std::uint8_t seen_version = in.u8();
    const std::uint8_t kind = in.u8();
    const unsigned bits = in.u16();
    const auto wanted = fields(kind);
    if (!in.ok() || seen_version != version || !wanted || (bits & wanted->must) != wanted->must ||
        (bits & ~(wanted->must | wanted->may | no_context)) != 0) {
        return std::nullopt;
    }
    constexpr unsigned value_bits =
        accepted_has_failed | accepted_has_flags | accepted_has_acknowledged;
    if ((bits & has_accepted) == 0 && (bits & value_bits) != 0) {
        return std::nullopt;
    }
    m.kind = static_cast<Kind>(kind);
    m.instance.context = (bits & no_context) != 0 ? 0 : in.u64();
    m.instance.sequence = in.u32();
    if (bits & has_number) {
        m.number = get_number(in, size);
    }
    if (bits & has_seen) {
        m.seen = get_number(in, size);
    }
    if (bits & has_below) {
        m.below = Range{in.u32(), in.u32()};
        if (m.below->begin > m.below->end || m.below->end > size) {
            return std::nullopt;
        }
    }
    if (bits & has_step) {
        const std::uint8_t stage = in.u8();
        m.step = in.u8();
        if (stage > static_cast<std::uint8_t>(Stage::commit) || m.step > 31) {
            return std::nullopt;
        }
        m.stage = static_cast<Stage>(stage);
    }
    m.ok = (bits & is_ok) != 0;
    if (bits & has_suspects) {
        m.suspects = get_set(in, size);
    }
    if (bits & has_unconfirmed) {
        m.unconfirmed = get_set(in, size);
    }
    if (bits & has_flags) {
        m.flags = in.u64();
    }
    if (bits & has_acknowledged) {
        m.acknowledged = get_set(in, size);
    }
    if (bits & has_accepted) {
        Accepted accepted;
        accepted.number = get_number(in, size, true);
        if (bits & accepted_has_failed) {
            accepted.value.failed = get_set(in, size);
        }
        if (bits & accepted_has_flags) {
            accepted.value.flags = in.u64();
        }
        if (bits & accepted_has_acknowledged) {
            accepted.value.acknowledged = get_set(in, size);
        }
        m.accepted = std::move(accepted);
    }
    if (!in.complete() || !m.unconfirmed.is_subset_of(m.suspects)) {
        return std::nullopt;
    }
    return m;
}

const char *name(Kind kind)
{
    constexpr std::array names = {"?",      "exchange", "ballot", "commit", "decide",
                                  "answer", "refuse",   "report", "stop",   "stopped"};
    const auto at = static_cast<std::size_t>(kind);
    return at < names.size() ? names[at] : names[0];
}

} // namespace ft::consensus
