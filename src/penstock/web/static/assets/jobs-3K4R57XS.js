import{a,b}from"./chunk-HEFTQW4K.js";import"./chunk-5BINOAXO.js";import"./chunk-SFB2IMIA.js";import"./chunk-I7NBLS3M.js";export{b as Act,a as Page};
