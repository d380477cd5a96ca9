/// Messages of the agreement, decoded from random bytes, and the sets of ranks in them.
///
/// The first byte chooses the size of the group. What decodes keeps to it, encodes again and
/// decodes to the same; its sets are put through every operation and compared with a plain list.
#include "opal/ft/consensus/message.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include <algorithm>
#include <array>

using namespace ft::consensus;

namespace {

void check_set(const RankSet &set, Rank size)
{
    Rank count = 0;
    Rank end = 0;
    for (const RankSet::Run &run : set.runs()) {
        FUZZ_REQUIRE((count == 0 || run.first > end) && run.first < run.end && run.end <= size);
        FUZZ_REQUIRE(run.before == count);
        count += run.end - run.first;
        end = run.end;
    }
    FUZZ_REQUIRE(set.count() == count && set.empty() == (count == 0));
    FUZZ_REQUIRE(set.count_in(0, size) == count && set.count_below(end) == count);
    FUZZ_REQUIRE(!set.contains(set.lowest_absent()));
}

/// Everything that two sets of small ranks can do with each other, against a plain list.
void check_pair(const RankSet &a, const RankSet &b, Rank size)
{
    const RankSet both = a.united(b);
    const RankSet common = a.common(b);
    const RankSet rest = a.minus(b);
    RankSet grown = a;
    FUZZ_REQUIRE(grown.unite(b) == !b.is_subset_of(a) && grown == both);
    Rank in_both = 0;
    for (Rank rank = 0; rank < size; ++rank) {
        const bool in_a = a.contains(rank);
        const bool in_b = b.contains(rank);
        FUZZ_REQUIRE(both.contains(rank) == (in_a || in_b));
        FUZZ_REQUIRE(common.contains(rank) == (in_a && in_b));
        FUZZ_REQUIRE(rest.contains(rank) == (in_a && !in_b));
        FUZZ_REQUIRE(both.count_below(rank) + (rank - both.count_below(rank)) == rank);
        in_both += in_a && in_b ? 1 : 0;
    }
    FUZZ_REQUIRE(common.count() == in_both);
    FUZZ_REQUIRE(both.count() == a.count() + b.count() - in_both);
    FUZZ_REQUIRE(common.is_subset_of(a) && rest.is_subset_of(a) && a.is_subset_of(both));
    const std::vector<Rank> members = both.members();
    RankSet one_by_one;
    for (const Rank rank : members) {
        FUZZ_REQUIRE(one_by_one.insert(rank) && !one_by_one.insert(rank));
    }
    FUZZ_REQUIRE(one_by_one == both);
    // The k-th absent one has k absent ones below it.
    for (Rank k = 0; k < 8; ++k) {
        const Rank absent = both.absent(k);
        FUZZ_REQUIRE(!both.contains(absent) && absent - both.count_below(absent) == k);
    }
}

/// The short decoder for what nearly all messages are agrees with the whole one.
void check_plain(std::span<const std::byte> input, const std::optional<Message> &whole)
{
    InstanceId instance;
    PlainStep step;
    const Tag tag(whole ? whole->suspects : RankSet{});
    if (!decode_plain(input, tag, instance, step)) {
        return;
    }
    const Message message = message_of(instance, tag.set(), step);
    FUZZ_REQUIRE(whole && *whole == message);
    std::vector<std::byte> again(longest_plain + tag.bytes().size());
    again.resize(encode_plain(instance, tag, step, again));
    FUZZ_REQUIRE(decode_plain(again, tag, instance, step) &&
                 message_of(instance, tag.set(), step) == message);
    FUZZ_REQUIRE(encode(message) == again);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0) {
        return 0;
    }
    constexpr Rank sizes[] = {64, 1, 200, 1U << 20, ~Rank{0}};
    const Rank group = sizes[data[0] % 5];
    const auto input = std::as_bytes(std::span(data + 1, size - 1));
    const std::optional<Message> m = decode(input, group);
    check_plain(input, m);
    FUZZ_REQUIRE(name(static_cast<Kind>(size > 2 ? data[2] : 0)) != nullptr);
    if (!m) {
        return 0;
    }
    std::vector<RankSet> sets{m->suspects, m->unconfirmed, m->acknowledged};
    if (m->accepted) {
        sets.push_back(m->accepted->value.failed);
        sets.push_back(m->accepted->value.acknowledged);
    }
    for (const RankSet &set : sets) {
        check_set(set, group);
    }
    if (group <= 200) {
        for (const RankSet &a : sets) {
            for (const RankSet &b : sets) {
                check_pair(a, b, group);
            }
        }
        check_pair(m->suspects, RankSet::range(3, 3 + group / 2), group);
        check_pair(RankSet{2, 5, 3}, m->acknowledged, std::max<Rank>(group, 8));
    }
    const std::vector<std::byte> again = encode(*m);
    FUZZ_REQUIRE(again.size() <= input.size() + 16);
    const std::optional<Message> second = decode(again, group);
    FUZZ_REQUIRE(second && *second == *m);
    return 0;
}
