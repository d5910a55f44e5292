// The script of a report. The page is complete without it: it adds a theme switch, sorting, tooltips,
// the filter of claims and the highlight of the visible section.
import { filterClaims } from "./claims";
import { followChapters } from "./chapters";
import { offerData } from "./data";
import { unfold } from "./fold";
import { sortTables } from "./sort";
import { switchTheme } from "./theme";
import { showTips } from "./tips";

switchTheme();
sortTables();
filterClaims();
showTips();
offerData();
followChapters();
unfold();
