// The controls of the congestion window, compared in virtual time: real engines send bulk over a
// bottleneck. Prints the comparison as Markdown, as it stands in docs/dgram.md, and as TAP whether
// the default one keeps its promises.
//
// usage: sim_congestion [--table]   with --table all controls, without it the default's promises
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/congestion/job.hpp"
#include "test/sim/congestion/tcp_flow.hpp"
#include "test/sim/consensus/tap.hpp"

namespace {

using namespace ft::sim;
using ft::base::Duration;
using ft::reliability::CongestionControl;
using sim::Tap;

constexpr std::uint64_t mebi = 1024 * 1024;
constexpr double usable = double{Job::fragment_bytes} / Job::on_wire;

struct Outcome {
    double used = 0;     ///< of what the link carries, losses by chance taken off
    double jain = 1;     ///< of two jobs
    double share = 0;    ///< of the first, where the second is another
    double overflow = 0; ///< share of packets that the bottleneck's queue refused
};

enum class Company { none, job, tcp, tcp_before };

/// \param start_up not measured \param later when the second begins, of start_up; beside a flow of
/// TCP that was there before that is the job \param under_way what each job sends at a time
Outcome measure(const LinkShape &shape, CongestionControl control, Company company, Duration length,
                Duration start_up, Duration later = {}, std::uint64_t under_way = 8 * mebi)
{
    Link link(shape, 5);
    ft::reliability::Config config;
    config.fragment_bytes = Job::fragment_bytes;
    config.path_depth = 1U << 16U;
    config.congestion = control;
    Job first(link, config, under_way);
    std::unique_ptr<Job> second;
    std::unique_ptr<TcpFlow> tcp;
    const auto begin = link.now();
    if (company == Company::tcp_before) {
        tcp = std::make_unique<TcpFlow>(link);
        tcp->begin();
        link.run(begin + later);
    }
    first.begin();
    link.run(begin + later);
    if (company == Company::job) {
        second = std::make_unique<Job>(link, config, under_way);
        second->begin();
    } else if (company == Company::tcp) {
        tcp = std::make_unique<TcpFlow>(link);
        tcp->begin();
    }
    const auto other = [&] {
        return static_cast<double>(second != nullptr ? second->delivered()
                                   : tcp != nullptr  ? tcp->delivered()
                                                     : 0);
    };
    link.run(begin + start_up);
    const auto a0 = static_cast<double>(first.delivered());
    const double b0 = other();
    link.run(begin + start_up + length);
    const double a = static_cast<double>(first.delivered()) - a0;
    const double b = other() - b0;
    Outcome outcome;
    outcome.used = (a + b) / static_cast<double>(length.ns()) / (shape.rate * usable);
    outcome.used /= 1 - shape.loss;
    outcome.jain = a + b == 0 ? 0 : (a + b) * (a + b) / (2 * (a * a + b * b));
    outcome.share = a + b == 0 ? 0 : a / (a + b);
    outcome.overflow = link.overflow();
    return outcome;
}

/// What a process and a network without a limit of its own are: the receiver's socket is the queue.
LinkShape fast(double loss, Duration delay = Duration::from_us(25))
{
    LinkShape shape;
    shape.rate = 1.4;
    shape.delay = delay;
    shape.queue = 8 * mebi;
    shape.loss = loss;
    return shape;
}
/// A switch with little memory.
LinkShape shallow()
{
    LinkShape shape;
    shape.rate = 1.25;
    shape.queue = 256 * 1024;
    return shape;
}
/// The rail of `test/bench/dgram share`: what a token bucket filter with a burst of 512 KiB and a
/// latency of 20 ms holds is both, so that a full queue takes 62 ms.
LinkShape slow()
{
    LinkShape shape;
    shape.rate = 0.0125;
    shape.queue = 250'000 + 512 * 1024;
    return shape;
}

constexpr auto second = Duration::from_s(1);

Outcome lossy(CongestionControl control, double loss, Duration delay = Duration::from_us(25))
{
    return measure(fast(loss, delay), control, Company::none, second / 2, second / 5);
}

void print_table()
{
    struct Named {
        const char *name;
        CongestionControl control;
    };
    std::printf(
        "| control | 0.1 %% | 1 %% | 5 %% | 30 %% lost by chance | shallow switch, alone: used, "
        "overflow | two jobs there: used, Jain, overflow | two jobs, 100 Mbit/s: used, Jain | "
        "share beside TCP CUBIC, 100 Mbit/s | the same, shallow switch |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n");
    for (const Named &named :
         {Named{"hybrid", CongestionControl::hybrid}, Named{"cubic", CongestionControl::cubic},
          Named{"delay", CongestionControl::delay}}) {
        const CongestionControl c = named.control;
        const Outcome alone = measure(shallow(), c, Company::none, second, second / 5);
        const Outcome pair = measure(shallow(), c, Company::job, second, second / 5);
        const Outcome slow_pair = measure(slow(), c, Company::job, second * 30, second * 10);
        const Outcome beside = measure(slow(), c, Company::tcp, second * 30, second * 10);
        const Outcome beside_fast = measure(shallow(), c, Company::tcp, second * 3, second);
        std::printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f, %.1f %% | %.2f, %.3f, %.1f %% | "
                    "%.2f, %.3f | %.2f | %.2f |\n",
                    named.name, lossy(c, 0.001).used, lossy(c, 0.01).used, lossy(c, 0.05).used,
                    lossy(c, 0.3).used, alone.used, 100 * alone.overflow, pair.used, pair.jain,
                    100 * pair.overflow, slow_pair.used, slow_pair.jain, beside.share,
                    beside_fast.share);
        std::fflush(stdout);
    }
}

/// Two jobs as `test/bench/dgram share` has them: the second comes within a second, and what each
/// gets is looked at from 3.5 s on for 5 s, in which a window shrinks once or twice. How alike they
/// are is a matter of when the second comes. \return the index of each time, in order
std::vector<double> second_comes_at_any_time(CongestionControl control)
{
    constexpr int times = 25;
    std::vector<double> found;
    for (int i = 0; i < times; ++i) {
        const Duration later = Duration::from_ms(i * 1000 / times);
        found.push_back(measure(slow(), control, Company::job, second * 5,
                                later + Duration::from_ms(3500), later, 2 * mebi)
                            .jain);
    }
    std::sort(found.begin(), found.end());
    return found;
}

/// Over a way that loses nothing the receiving process stands still now and then, for longer and
/// longer, with a whole window on its way. \return fragments that were sent again
std::uint64_t sent_again_needlessly()
{
    Link link(fast(0), 5);
    ft::reliability::Config config;
    config.fragment_bytes = Job::fragment_bytes;
    config.path_depth = 1U << 16U;
    Job job(link, config, 8 * mebi);
    job.begin();
    for (const int ms : {1, 4, 8, 16, 40, 100}) {
        link.run(link.now() + second / 5);
        job.stop_receiver(Duration::from_ms(ms));
    }
    link.run(link.now() + second / 5);
    const auto &c = job.counters();
    return c.retransmitted_timeout + c.retransmitted_gap + c.retransmitted_tail;
}

ft::reliability::Config with_fragments_of(std::uint32_t bytes)
{
    ft::reliability::Config config;
    config.fragment_bytes = bytes;
    config.path_depth = 1U << 16U;
    return config;
}

/// Many send to one, all at once, through a port or into a socket that holds so much.
/// \param after what begins then is measured
Outcome many_to_one(int senders, std::uint64_t queue, Duration after = second / 5)
{
    LinkShape shape = shallow();
    shape.queue = queue;
    Link link(shape, 5);
    const ft::reliability::Config config = with_fragments_of(Job::fragment_bytes);
    std::vector<std::unique_ptr<Job>> jobs;
    for (int i = 0; i < senders; ++i) {
        jobs.push_back(std::make_unique<Job>(link, config, 8 * mebi));
        jobs.back()->begin();
    }
    link.run(link.now() + after);
    static_cast<void>(link.overflow_lately());
    std::vector<double> before;
    for (const auto &job : jobs) {
        before.push_back(static_cast<double>(job->delivered()));
    }
    link.run(link.now() + second / 5);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const double got = static_cast<double>(jobs[i]->delivered()) - before[i];
        sum += got;
        squares += got * got;
    }
    Outcome outcome;
    outcome.used = sum / static_cast<double>((second / 5).ns()) / (shape.rate * usable);
    outcome.jain = sum * sum / (senders * squares);
    outcome.overflow = link.overflow_lately();
    return outcome;
}

/// One sends over a way that changes. \param fragment bytes \param then its delay, from `change` on
Outcome alone(const LinkShape &shape, std::uint32_t fragment, Duration start_up, Duration length,
              Duration change = {}, Duration then = {})
{
    Link link(shape, 5);
    const ft::reliability::Config config = with_fragments_of(fragment);
    Job job(link, config, 8 * mebi);
    job.begin();
    if (change > Duration{}) {
        link.run(link.now() + change);
        link.set_delay(then);
    }
    link.run(link.now() + start_up);
    const auto before = static_cast<double>(job.delivered());
    link.run(link.now() + length);
    Outcome outcome;
    outcome.used = (static_cast<double>(job.delivered()) - before) /
                   static_cast<double>(length.ns()) / shape.rate * (fragment + Job::headers) /
                   fragment;
    outcome.overflow = link.overflow();
    return outcome;
}

/// What a change of the route, and ways of unlike length, do to it.
LinkShape gigabit()
{
    LinkShape shape;
    shape.rate = 0.125;
    shape.queue = 256 * 1024;
    shape.loss = 0.01;
    return shape;
}
LinkShape sprayed()
{
    LinkShape shape;
    shape.rate = 12.5;
    shape.queue = 2 * mebi;
    shape.detour = Duration::from_us(20);
    return shape;
}

/// The default control. \return what main returns
int keep_promises()
{
    constexpr auto control = CongestionControl::hybrid;
    Tap tap;
    const auto promise = [&](bool kept, const char *what, const Outcome &outcome) {
        char text[200];
        std::snprintf(text, sizeof text, "%s (used %.2f, Jain %.3f, share %.2f, overflow %.1f %%)",
                      what, outcome.used, outcome.jain, outcome.share, 100 * outcome.overflow);
        tap.result(kept, text);
    };
    Outcome o = lossy(control, 0);
    promise(o.used > 0.95 && o.overflow == 0, "a way without loss is filled", o);
    o = lossy(control, 0.01);
    promise(o.used > 0.9, "1 % lost by chance costs no more than that", o);
    o = lossy(control, 0.05);
    promise(o.used > 0.7, "5 % lost by chance leave most of the rate", o);
    o = measure(shallow(), control, Company::none, second, second / 5);
    promise(o.used > 0.95 && o.overflow < 0.06, "a switch with little memory is not flooded", o);
    o = measure(shallow(), control, Company::job, second, second / 5);
    promise(o.used > 0.95 && o.jain > 0.98 && o.overflow < 0.08, "two jobs share it", o);
    o = measure(slow(), control, Company::job, second * 30, second * 10);
    promise(o.used > 0.95 && o.jain > 0.98, "two jobs share a way with a long queue", o);
    o = measure(slow(), control, Company::job, second * 4, second * 4, second);
    promise(o.used > 0.95 && o.jain > 0.99, "who comes second shares it within three seconds", o);
    const std::vector<double> alike = second_comes_at_any_time(control);
    const double median = alike[alike.size() / 2];
    tap.result(median > 0.98 && alike.front() > 0.8,
               "whenever it comes, Jain " + std::to_string(alike.front()) + " at the least, " +
                   std::to_string(median) + " in the median");
    o = measure(slow(), control, Company::tcp, second * 30, second * 10);
    promise(o.used > 0.95 && o.share > 0.3 && o.share < 0.7, "CUBIC is shared with there", o);
    o = measure(slow(), control, Company::tcp_before, second * 40, second * 20, second / 2);
    promise(o.used > 0.95 && o.share > 0.3 && o.share < 0.7, "and by who comes second to it", o);
    o = many_to_one(24, 208 * 1024);
    promise(o.used > 0.95 && o.jain > 0.95 && o.overflow < 0.25, "24 send into a small buffer", o);
    // More than it holds of the least windows.
    o = many_to_one(64, 208 * 1024, second * 3 / 5);
    promise(o.used > 0.95 && o.jain > 0.95 && o.overflow < 0.6, "64 send there, and nobody starves",
            o);
    o = many_to_one(64, mebi);
    promise(o.used > 0.95 && o.jain > 0.95 && o.overflow < 0.25, "64 send through one port", o);
    o = alone(fast(0.05), 8820, second / 5, second / 2);
    promise(o.used > 0.7, "5 % lost of jumbo frames leave most of the rate", o);
    o = alone(gigabit(), Job::fragment_bytes, second * 25, second * 2, second,
              Duration::from_us(600));
    promise(o.used > 0.7, "a way that gets longer is no queue for ever", o);
    o = alone(sprayed(), Job::fragment_bytes, second / 20, second / 20);
    promise(o.used > 0.7, "packets sprayed over ways of unlike length are not taken for lost", o);
    const std::uint64_t again = sent_again_needlessly();
    // The timer of 2.5 ms doubles: 0, 1, 2, 3, 4 and 5 of its turns.
    tap.result(again <= 20, "a peer that stands still is sent one fragment at a time, " +
                                std::to_string(again) + " in all");
    return tap.done();
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1 && std::strcmp(argv[1], "--table") == 0) {
        print_table();
        return 0;
    }
    return keep_promises();
}
