/// \file
/// The paths of one peer by number. Most peers are sent little, all of it over the best path, and
/// of their other ones nothing is known but what the layer above said. All that is so and alike,
/// whichever peers they lead to, is one object: an idle peer is to be small. PROTOCOL.md, "Paths".
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "opal/ft/base/assert.hpp"
#include "opal/ft/reliability/config.hpp"
#include "opal/ft/reliability/path.hpp"

namespace ft::reliability {

/// Not synchronised; what several tables share does not change, and its registry has a lock.
class PathTable {
  public:
    explicit PathTable(const Config &config) noexcept : config_(config) {}

    /// Looks a path up from the first to the last.
    class Iterator {
      public:
        Iterator(const PathTable &table, PathId id) noexcept : table_(&table), id_(id) {}
        const Path &operator*() const noexcept { return (*table_)[id_]; }
        Iterator &operator++() noexcept
        {
            ++id_;
            return *this;
        }
        bool operator==(const Iterator &) const noexcept = default;

      private:
        const PathTable *table_;
        PathId id_;
    };

    /// The reordering threshold that a path begins with.
    [[nodiscard]] static std::uint32_t first_threshold(const Config &config,
                                                       const PathInfo &info) noexcept
    {
        return info.keeps_order ? 1 : config.reorder_threshold;
    }

    /// How many are going to be added, so that no memory is taken for more.
    void expect(std::size_t paths);
    /// \pre size() < max_paths
    void add(const PathInfo &info);
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// \pre id < size()
    [[nodiscard]] const Path &operator[](PathId id) const noexcept
    {
        return id == 0 ? first_ : *others_[id - 1U];
    }
    /// The same, to be changed: it is this peer's own from now on. References to what it was like
    /// before are to the shared one still. \throw std::bad_alloc
    [[nodiscard]] Path &use(PathId id)
    {
        if (id == 0) {
            return first_;
        }
        if (!used(id)) [[unlikely]] {
            make_own(id);
        }
        return *others_[id - 1U];
    }
    /// Whether it has been this peer's own; if not, it is as it was added.
    [[nodiscard]] bool used(PathId id) const noexcept { return (used_ >> id & 1U) != 0; }
    [[nodiscard]] Iterator begin() const noexcept { return {*this, 0}; }
    [[nodiscard]] Iterator end() const noexcept { return {*this, size_}; }
    /// Calls `visit(PathId, Path &)` for each that is this peer's own.
    template <class Visit>
    void each_used(Visit visit)
    {
        for (PathId id = 0; id < size_; ++id) {
            if (used(id)) {
                visit(id, use(id));
            }
        }
    }
    /// Memory allocated for this peer alone.
    [[nodiscard]] std::size_t allocated_bytes() const noexcept;

  private:
    void make_own(PathId id);

    const Config &config_;
    Path first_; ///< nearly every peer uses it, and it is looked at most
    std::vector<std::shared_ptr<Path>> others_; ///< from 1 on; what is not used is not changed
    std::uint16_t used_ = 1;
    PathId size_ = 0;
    static_assert(max_paths <= 16);
};

/// Gives back what tables share and none has any more. Any thread.
void release_unused_paths() noexcept;

} // namespace ft::reliability
