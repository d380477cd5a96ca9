/// \file
/// Decides whether a gap in this process's queue (vader_queue.hpp) is one that a dead writer has
/// left, and closes it. No I/O: what it sees and does is handed to it.
///
/// A gap of a writer that lives looks the same for the few instructions between its two steps,
/// longer when it loses its processor there, and as long as it is stopped. To close that one would
/// spoil the queue when the writer goes on. So a gap is closed only when somebody has died, it has
/// stood unchanged in `patience` looks, and each neighbour has run since it was first seen, or
/// sleeps in the kernel, where nobody is between both steps.
#pragma once

#include "orte_glue/radixft/vader_queue.hpp"

#include <optional>

namespace ft::radixft {

class QueueSurroundings {
  public:
    QueueSurroundings() = default;
    virtual ~QueueSurroundings() = default;
    QueueSurroundings(const QueueSurroundings &) = delete;
    QueueSurroundings &operator=(const QueueSurroundings &) = delete;

    virtual VaderQueue::Finding look() = 0;
    /// Remembers how far each neighbour has run.
    virtual void note_neighbours() = 0;
    /// Whether each neighbour has left where it was then, or is no more.
    virtual bool neighbours_went_on() = 0;
    /// The link for which a thread of this process waits inside btl/vader, nullptr if none does;
    /// nothing when that could not be found out.
    virtual std::optional<VaderQueue::Link> awaited(VaderQueue::Place tail) = 0;
    virtual VaderQueue::Link head() = 0;
};

class QueueMender {
  public:
    /// Looks for which a gap must stand before anybody is asked; as often a thread must be seen
    /// waiting for the same link, or nobody for any.
    static constexpr int patience = 20;
    static constexpr int certainty = 3;

    /// Somebody has died.
    void on_death() noexcept
    {
        looking_ = true;
        looks_ = 0;
    }
    /// Whether step() is to be called: a millisecond after the last call.
    bool looking() const noexcept { return looking_; }
    /// \return whether a gap has been closed
    bool step(QueueSurroundings &around);

  private:
    bool close(QueueSurroundings &around);

    bool looking_ = false;
    int looks_ = 0;
    int seen_ = 0; ///< looks at the same gap
    VaderQueue::Finding gap_;
    std::optional<VaderQueue::Link> awaited_;
    int sure_ = 0;
};

} // namespace ft::radixft
