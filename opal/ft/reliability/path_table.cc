#include "opal/ft/reliability/path_table.hpp"

#include <algorithm>
#include <mutex>

#include "opal/ft/base/lasting.hpp"

namespace ft::reliability {

namespace {

void set_up(Path &path, const PathInfo &info, const Config &config)
{
    path.congestion =
        info.unreliable ? std::make_unique<Congestion>(config.congestion, config.absence) : nullptr;
    path.info = info;
    path.bandwidth = info.bandwidth;
    path.reorder_threshold = PathTable::first_threshold(config, info);
    path.rate_start = base::Time::never();
    path.next_probe = base::Time::never();
}

std::shared_ptr<Path> make(const PathInfo &info, const Config &config)
{
    std::shared_ptr<Path> path = std::make_shared<Path>();
    set_up(*path, info, config);
    return path;
}

/// What unused paths look like. There are as many kinds as there are BTL modules, or little more;
/// one is kept for as long as a peer has such a path.
class Kinds {
  public:
    std::shared_ptr<Path> like(const PathInfo &info, const Config &config)
    {
        const std::lock_guard guard(lock_);
        std::erase_if(known_, [](const Kind &kind) { return kind.path.expired(); });
        for (const Kind &kind : known_) {
            // The last peer that has it may go away between these two.
            if (std::shared_ptr<Path> path = kind.path.lock();
                kind.config == &config && path != nullptr && path->info == info) {
                return path;
            }
        }
        std::shared_ptr<Path> path = make(info, config);
        known_.push_back({&config, path});
        return path;
    }

    /// Keeps no memory for kinds that nobody has.
    void tidy() noexcept
    {
        const std::lock_guard guard(lock_);
        std::erase_if(known_, [](const Kind &kind) { return kind.path.expired(); });
        if (known_.empty()) {
            std::vector<Kind>().swap(known_);
        }
    }

  private:
    /// A configuration outlives the peers that have it, so its address tells it from others for as
    /// long as the path is there.
    struct Kind {
        const Config *config;
        std::weak_ptr<Path> path;
    };
    std::mutex lock_;
    std::vector<Kind> known_;
};

base::Lasting<Kinds> kinds;

} // namespace

void PathTable::expect(std::size_t paths)
{
    others_.reserve(std::clamp<std::size_t>(paths, 1, max_paths) - 1);
}

void PathTable::add(const PathInfo &info)
{
    FT_ASSERT(size_ < max_paths);
    if (size_ == 0) {
        set_up(first_, info, config_);
    } else {
        others_.push_back(kinds.object.like(info, config_));
    }
    ++size_;
}

void release_unused_paths() noexcept
{
    kinds.object.tidy();
}

void PathTable::make_own(PathId id)
{
    std::shared_ptr<Path> &path = others_[id - 1U];
    path = make(path->info, config_);
    used_ = static_cast<std::uint16_t>(used_ | 1U << id);
}

std::size_t PathTable::allocated_bytes() const noexcept
{
    std::size_t bytes = others_.capacity() * sizeof others_[0];
    for (PathId id = 0; id < size_; ++id) {
        if (used(id)) {
            constexpr std::size_t counts = 16; // how many share it: std::make_shared's block
            bytes += id == 0 ? 0 : sizeof(Path) + counts;
            bytes += (*this)[id].congestion != nullptr ? sizeof(Congestion) : 0;
        }
    }
    return bytes;
}

} // namespace ft::reliability
