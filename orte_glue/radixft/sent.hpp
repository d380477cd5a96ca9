/// What was written to a connection and is not known to have arrived, for the case that it does
/// not.
///
/// A connection that is given up since nothing gets through any more takes with it what its
/// kernel has not been able to deliver. The membership protocol asks again for what it misses, but
/// the runtime does not: a daemon that says once that its ranks have ended is waited for for ever.
/// So copies are kept until the other kernel has acknowledged them, and the other daemon, which
/// knows how many bytes of the connection it has had, is given the rest over the next one. One
/// thread; knows nothing of the runtime.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace ft::radixft {

template <typename Message>
class Sent {
  public:
    /// A message that took so many bytes of the connection; without one if it need not be given
    /// again.
    void add(std::uint64_t bytes, std::optional<Message> message)
    {
        end_ += bytes;
        if (message) {
            kept_.emplace_back(end_, std::move(*message));
        }
    }
    /// Whatever was not told of here, the connection has so many bytes by now.
    void ends_at(std::uint64_t bytes)
    {
        for (auto &[end, message] : kept_) {
            end += bytes - end_; // in whichever direction
        }
        end_ = bytes;
    }
    /// All bytes of the connection so far.
    std::uint64_t end() const { return end_; }
    /// At most so many of them are still on their way.
    void on_their_way(std::uint64_t bytes)
    {
        const std::uint64_t arrived = end_ - std::min(bytes, end_);
        while (!kept_.empty() && kept_.front().first <= arrived) {
            kept_.pop_front();
        }
    }
    /// What is not among the first `bytes` as a whole, oldest first.
    std::vector<Message> take_after(std::uint64_t bytes)
    {
        std::vector<Message> missing;
        for (auto &[end, message] : kept_) {
            if (end > bytes) {
                missing.push_back(std::move(message));
            }
        }
        kept_.clear();
        return missing;
    }
    std::size_t kept() const { return kept_.size(); }

  private:
    std::uint64_t end_ = 0;
    std::deque<std::pair<std::uint64_t, Message>> kept_; ///< with where each ends
};

} // namespace ft::radixft
