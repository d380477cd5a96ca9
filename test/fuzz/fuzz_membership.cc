/// Sealed membership messages, opened from random bytes.
///
/// The first byte chooses: bit 0, whether the tag is made right first, without which nearly every
/// input would end there; the rest, how high ids may be. What opens is a whole message: its views
/// are views, it can be described, and sealed again it opens to the same.
#include "opal/ft/membership/seal.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include "opal/ft/base/wire.hpp"

using namespace ft::membership;

namespace {

constexpr Key key{std::byte{7}, std::byte{1}};

void check_view(const View &view, NodeId most_ids)
{
    FUZZ_REQUIRE(view.size() != 0 && view.members().back() < most_ids);
    FUZZ_REQUIRE(view.consistent());
    const ViewPtr same = view.apply(view.epoch(), Change());
    FUZZ_REQUIRE(same && same->digest() == view.digest() && view.difference(*same).empty());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0) {
        return 0;
    }
    const auto input = std::as_bytes(std::span(data + 1, size - 1));
    const NodeId most_ids = NodeId{1} << (4 + (data[0] >> 1) % 9);
    std::vector<std::byte> bytes(input.begin(), input.end());
    if ((data[0] & 1) != 0) {
        const std::uint64_t tag = siphash24(key, input);
        bytes.resize(input.size() + Sealer::tag_size);
        ft::base::WireWriter(std::span(bytes).last(Sealer::tag_size)).u64(tag);
    }
    const Sealer sealer(key);
    Sealer::Fault fault = Sealer::Fault::none;
    const std::optional<Message> m = sealer.open(bytes, &fault, most_ids);
    FUZZ_REQUIRE(m.has_value() == (fault == Sealer::Fault::none));
    if (!m) {
        return 0;
    }
    FUZZ_REQUIRE(m->from < most_ids && m->to < most_ids);
    FUZZ_REQUIRE(!describe(*m).empty());
    if (m->view) {
        check_view(*m->view, most_ids);
    }
    if (m->ambiguous) {
        for (const Ambiguous &a : *m->ambiguous) {
            check_view(*a.target, most_ids);
        }
    }
    const auto again = sealer.seal(*m);
    const std::optional<Message> second = sealer.open(again, nullptr, most_ids);
    FUZZ_REQUIRE(second && equal(*m, *second) && equal(*second, *m));
    // A flipped bit anywhere is seen.
    std::vector<std::byte> flipped = again;
    flipped[data[0] % flipped.size()] ^= std::byte{1};
    FUZZ_REQUIRE(!sealer.open(flipped, &fault) && fault == Sealer::Fault::bad_tag);
    return 0;
}
