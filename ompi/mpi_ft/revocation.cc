// How the word that a communicator is revoked gets around.
#include "ompi/mpi_ft/record.hpp"

#include "ompi/mpi_ft/service.hpp"
#include "opal/process/standing.hpp"

namespace ft::validate {

std::optional<std::uint32_t> first_sequence_of(const Letter &revoked)
{
    std::uint32_t first = 0;
    if (revoked.body.size() != sizeof first) {
        return std::nullopt;
    }
    std::memcpy(&first, revoked.body.data(), sizeof first);
    return first;
}

bool Record::on_revoked(const Letter &letter)
{
    const auto first = first_sequence_of(letter);
    if (!first || comes_before(*first, first_sequence_)) {
        return true; // of one that had the same name before
    }
    if (comm_ == nullptr) {
        return comes_before(*first, *next_sequence_); // else of one that will have it
    }
    revoke();
    return true;
}

void Record::revoke()
{
    if (revoked) {
        return;
    }
    revoked = true;
    divert_if_needed();
    process::revoke(context_);
    revoke_inner();
    service().alarm_guests();
    // Everybody tells everybody: whoever lives has heard it when one that lives has.
    for (Rank member = 0; member < size(); ++member) {
        if (member != self_ && !dead_.contains(member)) {
            service().send(route(member), Topic::revoked, key_, first_sequence_);
        }
    }
    decline();
}

void Record::decline()
{
    // Those with another job get Open MPI's ids, which come again, perhaps with the same processes:
    // whoever has heard of the revocation would count one call more than who never had it.
    const bool may = comm_ != nullptr && !foreign_;
    if (revoked && may && !all_hear_ && waiting_.empty() && !concluding_) {
        all_hear_ = true; // the news that agree() takes first may lead here
        Brought nothing;
        nothing.flags = 0;
        agree(nothing, [](const Value &) {});
    }
}

} // namespace ft::validate
