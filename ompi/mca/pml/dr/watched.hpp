/// \file
/// Which paths are looked at in a pass of progress, and in which order.
#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ft::dr {

/// A master may have had hundreds of children that have parted from it and ended. Their paths are
/// put aside, so that they neither cost a look in each pass nor take turns from those in use: of
/// all that are aside a pass looks at one, and takes back one that is in use again. Guarded by
/// whoever has it.
template <class Path>
class Watched {
  public:
    /// Beyond that many a pass looks at a part of them.
    static constexpr std::size_t at_a_time = 64;

    /// May throw.
    void add(Path &path)
    {
        paths_.push_back(&path);
        use(paths_.size() - 1);
    }
    /// Nothing where it is not there.
    void remove(const Path &path) noexcept
    {
        auto at = std::find(paths_.begin(), paths_.end(), &path);
        if (at == paths_.end()) {
            return;
        }
        if (static_cast<std::size_t>(at - paths_.begin()) < used_) {
            --used_;
            *at = std::exchange(paths_[used_], *at);
            at = paths_.begin() + static_cast<std::ptrdiff_t>(used_);
        }
        *at = paths_.back();
        paths_.pop_back();
    }
    /// It is put aside no longer, if it was.
    void take_back(const Path &path) noexcept
    {
        const auto aside = paths_.begin() + static_cast<std::ptrdiff_t>(used_);
        const auto at = std::find(aside, paths_.end(), &path);
        if (at != paths_.end()) {
            use(static_cast<std::size_t>(at - paths_.begin()));
        }
    }
    /// One pass. \param look called with a path, and whether each that is in use is looked at in
    /// every pass; returns whether the path is not in use
    template <class Look>
    void pass(Look look) noexcept
    {
        const bool all = used_ <= at_a_time;
        if (all) {
            next_ = 0; // one that takes the place of one put aside has not had its turn then
        }
        for (std::size_t left = std::min(used_, at_a_time); left != 0; --left) {
            if (next_ >= used_) {
                next_ = 0;
            }
            if (look(*paths_[next_], all)) {
                --used_;
                std::swap(paths_[next_], paths_[used_]);
            } else {
                ++next_;
            }
        }
        if (used_ == paths_.size()) [[likely]] {
            return;
        }
        ++next_aside_;
        if (next_aside_ < used_ || next_aside_ >= paths_.size()) {
            next_aside_ = used_;
        }
        if (!look(*paths_[next_aside_], false)) {
            use(next_aside_);
        }
    }
    /// How many are not put aside.
    std::size_t used() const noexcept { return used_; }

  private:
    void use(std::size_t place) noexcept
    {
        std::swap(paths_[place], paths_[used_]);
        ++used_;
    }

    std::vector<Path *> paths_; ///< first those in use
    std::size_t used_ = 0;
    std::size_t next_ = 0;
    std::size_t next_aside_ = 0;
};

} // namespace ft::dr
