// Whole exchanges as prose: a script of faults, and every message that follows, against what is
// written down. Prints TAP.
//
//   story SCRIPT...            compares; the script is the golden file itself
//   story --rewrite SCRIPT...  writes what happens into the file, for a reader to judge
//
// A script's lines "> command" say what is done; all others are what the engine then says.
//   > nodes N arity A | > at MS | > kill ID | > cut-power ID | > start ID | > leave ID | > stop ID
//   | > resume ID | > cut FROM TO | > heal 0 | > until MS

#include "test/sim/membership/world.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

namespace {

std::string what_happens(const std::vector<std::string> &commands)
{
    static const char *const kinds[] = {
        "installs", "has all votes for", "believes dead", "hears from", "suspends",
        "resumes",  "is evicted",        "ends",          "has left"};
    std::string told;
    std::unique_ptr<sim::World> world;
    for (const std::string &line : commands) {
        told += line + '\n';
        std::istringstream in(line.substr(2));
        std::string verb;
        unsigned long value = 0;
        if (line.rfind("> #", 0) == 0 || !(in >> verb >> value)) {
            continue;
        }
        const auto id = static_cast<sim::NodeId>(value);
        if (verb == "nodes") {
            sim::Config c;
            std::string word;
            in >> word >> c.arity;
            sim::Weather calm;
            calm.jitter = sim::Duration::zero();
            world = std::make_unique<sim::World>(c, id, calm, 1);
            world->on_send = [&told](const sim::Message &m) {
                if (m.type != sim::Type::heartbeat) {
                    told += describe(m) + '\n';
                }
                return true;
            };
            world->on_event = [&told](sim::NodeId who, const sim::Event &e) {
                told += "    " + std::to_string(who) + ' ' + kinds[static_cast<unsigned>(e.kind)];
                if (e.kind == sim::Event::Kind::believed || e.kind == sim::Event::Kind::refuted) {
                    told += ' ' + std::to_string(e.who.id);
                } else if (e.view) {
                    told += " view " + std::to_string(e.view->epoch()) + " of " +
                            std::to_string(e.view->size());
                }
                told += '\n';
            };
        } else if (!world) {
            told += "no nodes yet\n";
        } else if (verb == "until") {
            world->run_until(sim::Time::zero() + sim::Duration::from_ms(static_cast<int>(value)));
        } else if (verb == "kill") {
            world->kill(id, sim::Death::loud);
        } else if (verb == "cut-power") {
            world->kill(id, sim::Death::silent);
        } else if (verb == "start") {
            world->start(id);
        } else if (verb == "leave") {
            world->leave(id);
        } else if (verb == "stop") {
            world->stop(id);
        } else if (verb == "resume") {
            world->resume(id);
        } else if (verb == "cut") {
            sim::NodeId to = 0;
            in >> to;
            world->cut(id, to);
        } else if (verb == "clock-back") {
            int ms = 0;
            in >> ms;
            world->step_clock(id, -sim::Duration::from_ms(ms));
        } else if (verb == "heal") {
            world->heal();
        } else {
            told += "unknown command\n";
        }
    }
    if (world) {
        world->check_end(true);
        for (const std::string &v : world->violations()) {
            told += "VIOLATION " + v + '\n';
        }
    }
    return told;
}

} // namespace

int main(int argc, char **argv)
{
    const bool rewrite = argc > 1 && std::strcmp(argv[1], "--rewrite") == 0;
    int failed = 0;
    std::printf("1..%d\n", argc - 1 - rewrite);
    for (int i = 1 + rewrite; i < argc; ++i) {
        std::ifstream file(argv[i]);
        std::string line;
        std::string golden;
        std::vector<std::string> commands;
        while (std::getline(file, line)) {
            golden += line + '\n';
            if (line.rfind("> ", 0) == 0) {
                commands.push_back(line);
            }
        }
        file.close();
        const std::string told = what_happens(commands);
        if (rewrite) {
            std::ofstream(argv[i]) << told;
        }
        const bool good = rewrite || (!commands.empty() && told == golden);
        failed += !good;
        std::printf("%s %d - %s\n", good ? "ok" : "not ok", i - rewrite, argv[i]);
        if (!good) {
            std::istringstream a(golden);
            std::istringstream b(told);
            std::string x;
            std::string y;
            while (std::getline(a, x) && std::getline(b, y) && x == y) {
            }
            std::printf("# written: %s\n# happens: %s\n", x.c_str(), y.c_str());
        }
    }
    return failed == 0 ? 0 : 1;
}
