// How the word that a communicator is revoked gets around.
#include "ompi/mpi_ft/record.hpp"

#include "ompi/mpi_ft/service.hpp"
#include "opal/ft/base/assert.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

std::optional<Revocation> revocation_of(const Letter &letter)
{
    Revocation revocation{};
    if (letter.body.size() != sizeof revocation) {
        return std::nullopt;
    }
    std::memcpy(&revocation, letter.body.data(), sizeof revocation);
    return revocation;
}

bool Record::on_revoked(const Letter &letter)
{
    const auto its = revocation_of(letter);
    if (!its || comes_before(its->first, first_sequence_)) {
        return true; // of one that had the same name before
    }
    if (comm_ == nullptr && !(freed() && comes_before(its->first, next_life_))) {
        // Else of one that will have it.
        return comes_before(its->first, freed_ ? next_life_ : *next_sequence_);
    }
    if (comes_before(wanted_, its->made_until)) {
        wanted_ = its->made_until;
    }
    const std::uint32_t news = its->gone & ~gone_;
    gone_ |= its->gone;
    if (revoked && news != 0) {
        spread_revocation();
    }
    revoke();
    decline();
    if (inter_ && (news & group_bit(false)) != 0) {
        lose_other_group(); // the last: calls may end
    }
    return true;
}

void Record::revoke()
{
    if (revoked) {
        return;
    }
    revoked = true;
    if (comm_ != nullptr) { // else the context may be another's by now
        divert_if_needed();
        process::revoke(context_);
        revoke_inner();
    }
    service().alarm_guests();
    spread_revocation();
    decline_pairings(*this);
}

void Record::let_go()
{
    FT_ASSERT(waiting_.empty());
    gone_ |= group_bit(true);
    if (revoked) {
        spread_revocation();
    } else {
        revoke();
    }
}

void Record::spread_revocation()
{
    // Everybody tells everybody: whoever lives has heard it when one that lives has.
    const bool others_are_gone = inter_ && (gone_ & group_bit(false)) != 0;
    for (Rank member = 0; member < size(); ++member) {
        const bool is_gone =
            others_are_gone && member >= first_rank_ && member - first_rank_ < rank_count_;
        if (member != self_ && !is_gone && !dead_.contains(member)) {
            service().send(route(member), Topic::revoked, key_,
                           Revocation{first_sequence_, made_until_, gone_});
        }
    }
}

void Record::decline()
{
    // Those with another job get Open MPI's ids, which come again, perhaps with the same processes:
    // whoever has heard of the revocation would count other calls than who never had it.
    const bool may = (comm_ != nullptr || freed_) && !foreign_ && !concluding_;
    while (may && revoked && !recovering_ && comes_before(*next_sequence_, wanted_)) {
        Brought nothing;
        nothing.flags = 0;
        enter(
            next_of(nullptr), nothing, acknowledged, [](const Value &) {}, nullptr);
    }
}

} // namespace ft::validate
