/// \file
/// What surrounds this process's queue under btl/vader: the memory it has mapped, the neighbours as
/// the kernel shows them, and its own threads.
#pragma once

#include "orte_glue/radixft/queue_mender.hpp"

#include <map>

namespace ft::radixft {

/// The segments that btl/vader has mapped, mapped a second time while this lives: a program that
/// is in MPI_Finalize may unmap its own at any moment.
class SegmentsAgain {
  public:
    explicit SegmentsAgain(std::uint32_t jobid);
    ~SegmentsAgain();
    SegmentsAgain(const SegmentsAgain &) = delete;
    SegmentsAgain &operator=(const SegmentsAgain &) = delete;

    const VaderQueue::Mapped &found() const noexcept { return found_; }

  private:
    VaderQueue::Mapped found_;
};

/// One at a time in a process, and used by one thread, which the program's signals do not reach.
class LocalQueue : public QueueSurroundings {
  public:
    /// Of a process with this local rank, with the segments that it has mapped now.
    LocalQueue(std::uint32_t jobid, std::uint32_t local_rank);

    bool usable() const noexcept { return queue_.usable(); }

    VaderQueue::Finding look() override { return queue_.look(); }
    void note_neighbours() override;
    bool neighbours_went_on() override;
    /// Asks each thread that has a processor by a signal that most programs ignore, SIGURG, whose
    /// handler this replaces for the moment. It still gets what is not of this.
    std::optional<VaderQueue::Link> awaited(VaderQueue::Place tail) override;
    VaderQueue::Link head() override { return queue_.head(); }

  private:
    SegmentsAgain segments_;
    VaderQueue queue_;
    std::map<std::int64_t, std::int64_t> had_run_; ///< by thread, in ticks
};

} // namespace ft::radixft
